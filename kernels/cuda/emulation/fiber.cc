// Switching between stacks. ucontext's own switch makes a system call each time,
// which would be most of the emulation's time, so x86-64 has a few instructions instead.
#include "internal.h"

#if defined(__x86_64__) && !defined(EMU_UCONTEXT)

asm(R"(
.text
.local emu_fiber_switch
.type emu_fiber_switch, @function
emu_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_fiber_switch, .-emu_fiber_switch
)");
extern "C" void emu_fiber_switch(void** save, void* to);

namespace emu {

void fiber_switch(void** save, void* to) { emu_fiber_switch(save, to); }

void fiber_start(Fiber* f, void (*entry)()) {
  void** top = (void**)(f->stack + kStack);
  *--top = nullptr;        // entry never returns
  *--top = (void*)entry;   // rsp + 8 is a multiple of 16 at its first instruction
  for (int i = 0; i < 6; i++) *--top = nullptr;
  f->sp = top;
}

}  // namespace emu

#else
#include <ucontext.h>

namespace emu {

static ucontext_t contexts[kMaxThreads + 1];

void fiber_switch(void** save, void* to) {
  ucontext_t* from = *save ? (ucontext_t*)*save : &contexts[kMaxThreads];
  *save = from;
  swapcontext(from, (ucontext_t*)to);
}

void fiber_start(Fiber* f, void (*entry)()) {
  ucontext_t* c = &contexts[f->number];
  getcontext(c);
  c->uc_stack.ss_sp = f->stack;
  c->uc_stack.ss_size = kStack;
  makecontext(c, entry, 0);
  f->sp = c;
}

}  // namespace emu
#endif
