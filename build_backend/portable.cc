// For op libraries in wheels: what newer C++ libraries would ask of a system
// that may be older. Compilers since GCC 11 refer to these two; defined here,
// hidden, they are ours (TF_GC_PORTABLE=1, setup.py).

#include <new>

#pragma GCC visibility push(hidden)

extern "C" {
// Whether the process has one thread, so that counting references needs no
// atomic operations. It has several.
char __libc_single_threaded = 0;
}

namespace std {

void __throw_bad_array_new_length() { throw std::bad_array_new_length(); }

}  // namespace std

#pragma GCC visibility pop
