#!/usr/bin/env bash
# The pictures of README and docs, made anew: rehearses two small studies, and photographs their pages, a run's and a
# plan's with a headless browser, light and dark, 1400 and 400 pixels wide.
#
#   make pictures                        needs chromium (apt-get install chromium)
set -euo pipefail
cd "$(dirname "$0")/.."

browser=${CHROMIUM:-chromium}
command -v "$browser" >/dev/null || { echo "pictures: $browser is not here: apt-get install chromium, or name one with CHROMIUM=" >&2; exit 1; }
work=build/pictures
out=docs/pictures
rm -rf "$work"
mkdir -p "$work" "$out"

# photograph PAGE NAME WIDTH HEIGHT THEME
photograph() {
  local profile scheme=1
  profile=$(mktemp -d)
  [ "$5" = light ] || scheme=0
  "$browser" --headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync \
    --user-data-dir="$profile" --hide-scrollbars --blink-settings=preferredColorScheme=$scheme --window-size="$3,$4" \
    --screenshot="$PWD/$out/$2-$3-$5.png" "file://$PWD/$1" >"$work/browser.log" 2>&1 || { cat "$work/browser.log" >&2; exit 1; }
  rm -rf "$profile"
  [ -s "$out/$2-$3-$5.png" ] || { echo "pictures: $browser made no picture of $1" >&2; exit 1; }
}

bin/pipetrain study jobs/studies/timelines.toml --out "$work/timelines"
one() { basename "$(grep -l "$1" "$work"/timelines/plots/timeline-*-predicted.svg)"; }
cp "$work/timelines/plots/$(one 'step of 1F1B:')" "$out/timeline-1f1b.svg"
cp "$work/timelines/plots/$(one 'step of 1F1B + 2BP:')" "$out/timeline-1f1b-2bp.svg"
bin/pipetrain study jobs/studies/rehearsed.toml --out "$work/study"
run=$(dirname "$(find "$work/timelines/runs" -path '*r1/job.toml' | sort | tail -n 1)")
bin/pipetrain report -o "$work/run.html" "$run"
bin/pipetrain plan jobs/studies/rehearsed-job.toml --set parallel.stages=4 --set schedule.microbatches=8 --html "$work/plan.html" >"$work/plan.txt"

for theme in light dark; do
  photograph "$work/study/report.html" study 1400 1250 $theme
  photograph "$work/study/report.html" study 400 900 $theme
  photograph "$work/run.html" run 1400 1250 $theme
  photograph "$work/run.html" run 400 900 $theme
done
photograph "$work/plan.html" plan 1400 1000 light
ls -l "$out"
