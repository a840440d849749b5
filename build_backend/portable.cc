// For op libraries in wheels for x86-64: what newer C and C++ libraries would
// ask of a system that may be older (TF_GC_PORTABLE=1, setup.py).

#include <pthread.h>
#include <time.h>

#include <new>

extern "C" int OldSetClock(pthread_condattr_t* attributes, clockid_t clock);
__asm__(".symver OldSetClock, pthread_condattr_setclock@GLIBC_2.3.3");

#pragma GCC visibility push(hidden)

// This function has a new version since glibc 2.34, which does the same. The
// linker has all calls come here (--wrap).
extern "C" int __wrap_pthread_condattr_setclock(pthread_condattr_t* attributes,
                                                clockid_t clock) {
  return OldSetClock(attributes, clock);
}

// Compilers since GCC 11 refer to these two. Defined here, they are ours.
extern "C" {
// Whether the process has one thread, so that counting references needs no
// atomic operations. It has several.
char __libc_single_threaded = 0;
}

namespace std {

void __throw_bad_array_new_length() { throw std::bad_array_new_length(); }

}  // namespace std

#pragma GCC visibility pop
