// The optimizers, one pass over the weights. low is null, or receives the new weights in bf16.
#include "device.h"

// AdamW (arXiv 1711.05101, algorithm 2, decay scaled by the learning rate):
// step = lr / (1 - beta1^t), bias2 = 1 / sqrt(1 - beta2^t), keep = 1 - lr·decay.
KERNEL(adamw, 256, float* w, const float* g, float* m, float* v, bf16* low, long n, float beta1, float one_beta1, float beta2,
       float one_beta2, float grad_scale, float step, float bias2, float eps, float keep) {
  bool whole_packs = whole<4>(w) && whole<4>(g) && whole<4>(m) && whole<4>(v) && whole<4>(low);
  long stride = (long)blocks_x() * threads() * 4;
  for (long at = ((long)block_x() * threads() + thread()) * 4; at < n; at += stride) {
    in_packs<4>(whole_packs, n - at, [&](long left, bool fast) INLINE {
      float wi[4], gi[4], mi[4], vi[4];
      load<4>(wi, w + at, left, fast);
      load<4>(gi, g + at, left, fast);
      load<4>(mi, m + at, left, fast);
      load<4>(vi, v + at, left, fast);
      UNROLL for (int i = 0; i < 4; i++) {
        float d = gi[i] * grad_scale;
        mi[i] = fma_(beta1, mi[i], one_beta1 * d);
        vi[i] = fma_(beta2, vi[i], one_beta2 * d * d);
        wi[i] = fma_(wi[i], keep, -(step * mi[i] / fma_(sqrt_(vi[i]), bias2, eps)));
      }
      store<4>(m + at, mi, left, fast);
      store<4>(v + at, vi, left, fast);
      store<4>(w + at, wi, left, fast);
      if (low) store<4>(low + at, wi, left, fast);
    });
  }
}

// SGD: b = momentum·b + g + decay·w; w -= lr·b. Without momentum b is null.
KERNEL(sgd, 256, float* w, const float* g, float* b, bf16* low, long n, float lr, float momentum, float decay, float grad_scale) {
  bool whole_packs = whole<4>(w) && whole<4>(g) && whole<4>(b) && whole<4>(low);
  long stride = (long)blocks_x() * threads() * 4;
  for (long at = ((long)block_x() * threads() + thread()) * 4; at < n; at += stride) {
    in_packs<4>(whole_packs, n - at, [&](long left, bool fast) INLINE {
      float wi[4], di[4], bi[4];
      load<4>(wi, w + at, left, fast);
      load<4>(di, g + at, left, fast);
      UNROLL for (int i = 0; i < 4; i++) di[i] = fma_(decay, wi[i], di[i] * grad_scale);
      if (b) {
        load<4>(bi, b + at, left, fast);
        UNROLL for (int i = 0; i < 4; i++) di[i] = fma_(momentum, bi[i], di[i]);
        store<4>(b + at, di, left, fast);
      }
      UNROLL for (int i = 0; i < 4; i++) wi[i] = fma_(-lr, di[i], wi[i]);
      store<4>(w + at, wi, left, fast);
      if (low) store<4>(low + at, wi, left, fast);
    });
  }
}
