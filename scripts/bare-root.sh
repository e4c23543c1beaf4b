#!/usr/bin/env bash
# Does what the README tells a new user, in a clone on a bare system: a minimal
# Debian or Ubuntu of this machine's release with git, make, certificates and
# this machine's Go, on which nothing else is installed.
#
#   scripts/bare-root.sh             make demo, then make test
#   scripts/bare-root.sh 'COMMAND'   another command, by bash
#   scripts/bare-root.sh --can       0, or 1 and why this cannot be done here
#
# The bare system and what apt downloads in it are kept in PIPETRAIN_BARE_CACHE
# (/var/cache/pipetrain-bare) for the next run; what is installed in it is not.
# However this ends, its processes, mounts and files go. Needs root and apt.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${PIPETRAIN_BARE_CACHE:-/var/cache/pipetrain-bare}
work=$cache/work # goes at the end
root=$work/root
say() { echo "bare-root: $*" >&2; }
die() { say "$*"; exit 1; }

# Prints why a bare system cannot be made here, nothing where it can.
refusal() {
  local tool
  [ "$(id -u)" = 0 ] || { echo "not root"; return; }
  for tool in apt-get apt-config apt-cache git go tar flock; do
    command -v $tool >/dev/null || { echo "no $tool here"; return; }
  done
  unshare --mount --ipc --pid --fork --kill-child bash -c 'mount --make-rprivate / && mount -t tmpfs tmpfs /mnt && mount -t proc proc /proc' 2>/dev/null ||
    echo "no mount and process namespaces for this user"
}

# ---- the bare system, as an archive ------------------------------------------

# apt's settings for the network. The rest of this machine's settings is its own affair.
apt_settings() { apt-config dump | grep -E '^Acquire::(https?|Check-|ForceIP|Retries|AllowInsecure|AllowWeak)' || true; }

sources() { ls /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; }

make_archive() {
  local release key files made=$cache/root.tar
  # shellcheck source=/dev/null
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mapfile -t files < <(sources)
  key=$({ echo "$release"; declare -f make_archive; apt_settings; cat "${files[@]}"; } | sha256sum | cut -c 1-16)
  # A week's updates are what apt installs on top; then all is made anew.
  if [ -s "$made" ] && [ "$(cat "$made.key" 2>/dev/null)" = "$key" ] && [ -z "$(find "$made" -mtime +6)" ]; then return; fi
  say "making the bare system, which is kept for the next run"
  command -v mmdebstrap >/dev/null || quietly sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends mmdebstrap'
  rm -rf "$cache/archives" "$made"
  apt_settings >"$work/apt.conf"
  quietly env TMPDIR="$work" mmdebstrap --quiet --mode=root --format=tar --variant=minbase --include=ca-certificates,git,make --aptopt="$work/apt.conf" "$release" "$work/root.tar" "${files[@]}"
  mv "$work/root.tar" "$made"
  echo "$key" >"$made.key"
}

# Runs a command whose output matters only when it fails.
quietly() {
  leashed "$@" >"$work/log" 2>&1 && return
  tail -n 30 "$work/log" >&2
  die "'$*' failed; its last lines are above"
}

# Runs a command with all that it starts in namespaces that go with this script. In
# the background, since bash heeds no signal while it waits for a command.
leashed() {
  setpriv --pdeathsig KILL unshare --mount --ipc --pid --mount-proc --fork --kill-child "$@" </dev/null 8>&- 9>&- &
  running=$!
  local code=0
  wait "$running" || code=$?
  running=
  return $code
}

# ---- one run -----------------------------------------------------------------

# What no namespace takes away: the files, and the bridges of test clusters, which
# are in this machine's network. A bridge of somebody's living cluster has a folder
# in this machine's /run, or its lock is held.
clean() {
  local link ip
  PATH=$PATH:/usr/sbin:/sbin
  for link in $(cd /sys/class/net && ls -d ptc[1-9] 2>/dev/null); do
    [ ! -d "/run/pipetrain-cluster-${link#ptc}" ] || continue
    ip=(ip)
    command -v ip >/dev/null || ip=(chroot "$root" ip)
    flock -n "/run/lock/pipetrain-cluster-${link#ptc}" "${ip[@]}" link del "$link" || say "the bridge $link is left"
  done
  # Processes may take a moment to be gone.
  for _ in {1..100}; do
    rm -rf --one-file-system "$work" 2>/dev/null && return
    sleep 0.1
  done
  say "$work cannot be removed"
}

# Outlives this script, however that ends: its end is the pipe's. It holds the
# lock until all is clean.
start_janitor() {
  # shellcheck disable=SC2034 # a coprocess is an array
  coproc JANITOR { exec setsid bash -c "$(declare -f say clean); work=\$1 root=\$1/root; trap '' HUP INT TERM; cat >/dev/null; sleep 0.2; clean" janitor "$work"; }
  janitor=$JANITOR_PID
  exec 8>&"${JANITOR[1]}"
}

finish() {
  local code=$?
  trap '' HUP INT TERM
  if [ -n "${running:-}" ]; then
    kill -KILL "$running" || true
    wait "$running" || true
  fi 2>/dev/null
  exec 8>&-
  [ -z "${JANITOR[1]:-}" ] || eval "exec ${JANITOR[1]}>&-"
  wait "$janitor" || true
  exit $code
}

unpack() {
  mkdir -p "$root" "$cache/archives/partial"
  tar -C "$root" -xf "$cache/root.tar" --exclude='./dev/*'
  apt_settings >"$root/etc/apt/apt.conf.d/90network"
  # Names and certificates as this machine has them: it may be behind a proxy.
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  cp "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/etc/ssl/certs/ca-certificates.crt" 2>/dev/null || true
  cp -a /usr/local/share/ca-certificates "$root/usr/local/share/" 2>/dev/null || true
  cp -a /etc/apt/keyrings /etc/apt/trusted.gpg.d "$root/etc/apt/" 2>/dev/null || true
  mkdir -p "$root/usr/local/go" "$root/var/cache/apt/archives" "$root/.old"
  # The clone may be another user's.
  printf '[safe]\n\tdirectory = *\n[advice]\n\tdetachedHead = false\n' >"$work/gitconfig"
  GIT_CONFIG_GLOBAL=$work/gitconfig git clone -q "$PWD" "$root/root/pipetrain"
}

# Becomes the command's parent in the bare system: process 1 of namespaces that go
# with it. pivot_root, not chroot: a chrooted process may make no user namespaces,
# and what is no mount cannot be made private.
enter='
  root=$1 cache=$2 goroot=$3; shift 3
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount --bind "$goroot" "$root/usr/local/go"
  mount -o remount,bind,ro "$root/usr/local/go"
  mount --bind "$cache/archives" "$root/var/cache/apt/archives"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  # Clusters on one machine take turns.
  mkdir -p /run/lock "$root/run/lock"
  mount --bind /run/lock "$root/run/lock"
  cd "$root"
  pivot_root . .old
  cd /root/pipetrain
  umount -l /.old
  env "$@"
'

case "${1:-}" in
--can)
  why=$(refusal)
  [ -z "$why" ] || { echo "$why"; exit 1; }
  exit 0 ;;
-*) say "unknown argument '$1'; known: --can, or a command"; exit 2 ;;
esac
main() { # one piece: bash reads a script while it runs it, and the file may change
  command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
  why=$(refusal)
  [ -z "$why" ] || die "no bare system can be made here: $why"
  mkdir -p "$cache" /run/lock
  exec 9>"$cache/lock"
  flock -n 9 || { say "waiting for another run's end"; flock 9; }

  rm -rf --one-file-system "$work" # of a run that was cut off with its janitor
  mkdir -p "$work"
  start_janitor
  trap finish EXIT
  trap 'exit 143' HUP INT TERM
  make_archive
  unpack

  # What a login gives, and how this machine reaches the network.
  variables=(HOME=/root USER=root TERM=dumb LANG=C.UTF-8 PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  for name in GOPROXY GONOPROXY GOSUMDB GONOSUMDB GOPRIVATE GOINSECURE; do
    value=$(go env $name)
    [ -z "$value" ] || variables+=("$name=$value")
  done
  for name in CI http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || variables+=("$name=${!name}")
  done
  say "a bare $(. /etc/os-release && echo "$PRETTY_NAME") with $(go env GOVERSION), at $(git describe --always --dirty 2>/dev/null || echo 'an unknown commit')"
  leashed bash -euo pipefail -c "$enter" bare-root "$root" "$cache" "$(go env GOROOT)" \
    --default-signal -i "${variables[@]}" bash -c "${1:-make demo && make test}"
}
main "$@"
