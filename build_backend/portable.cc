// For op libraries in wheels: what newer C++ libraries would ask of a system
// that may be older. Compilers since GCC 11 refer to these two; defined here,
// hidden, they are ours (TF_GC_PORTABLE=1, setup.py).

#include <new>

// Whether the process has one thread, so that counting references needs no
// atomic operations. It has several.
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded =
    0;

namespace std {

__attribute__((visibility("hidden"))) void __throw_bad_array_new_length() {
  throw std::bad_array_new_length();
}

}  // namespace std
