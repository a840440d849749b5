// For op libraries in wheels: what newer C and C++ libraries would ask of a
// system that may be older (TF_GC_PORTABLE=1, setup.py).

#include <new>

// These functions have a new version since glibc 2.34, which is the same code
// in another library. The linker has all calls of them come here (--wrap, for
// each name that follows OLD), and they go on to the version before. On Arm
// that is the first one that there was.
#ifdef __aarch64__
#define OLD(name, version) FORWARD(name, "b Old_" #name, "2.17")
#else
#define OLD(name, version) FORWARD(name, "jmp Old_" #name "@PLT", version)
#endif
#define FORWARD(name, jump, version)                                        \
  __asm__(".text\n.globl __wrap_" #name "\n.hidden __wrap_" #name           \
          "\n.type __wrap_" #name ", @function\n__wrap_" #name ":\n  " jump \
          "\n.symver Old_" #name ", " #name "@GLIBC_" version "\n")

OLD(pthread_condattr_setclock, "2.3.3");
// The CUDA runtime calls these.
OLD(dlclose, "2.2.5");
OLD(dlerror, "2.2.5");
OLD(dlmopen, "2.3.4");
OLD(dlopen, "2.2.5");
OLD(dlsym, "2.2.5");
OLD(dlvsym, "2.2.5");
OLD(pthread_condattr_setpshared, "2.2.5");
OLD(pthread_create, "2.2.5");
OLD(pthread_detach, "2.2.5");
OLD(pthread_getspecific, "2.2.5");
OLD(pthread_join, "2.2.5");
OLD(pthread_key_create, "2.2.5");
OLD(pthread_key_delete, "2.2.5");
OLD(pthread_kill, "2.2.5");
OLD(pthread_mutex_trylock, "2.2.5");
OLD(pthread_mutexattr_destroy, "2.2.5");
OLD(pthread_mutexattr_init, "2.2.5");
OLD(pthread_mutexattr_setpshared, "2.2.5");
OLD(pthread_mutexattr_settype, "2.2.5");
OLD(pthread_once, "2.2.5");
OLD(pthread_rwlock_destroy, "2.2.5");
OLD(pthread_rwlock_init, "2.2.5");
OLD(pthread_rwlock_rdlock, "2.2.5");
OLD(pthread_rwlock_timedrdlock, "2.2.5");
OLD(pthread_rwlock_timedwrlock, "2.2.5");
OLD(pthread_rwlock_tryrdlock, "2.2.5");
OLD(pthread_rwlock_trywrlock, "2.2.5");
OLD(pthread_rwlock_unlock, "2.2.5");
OLD(pthread_rwlock_wrlock, "2.2.5");
OLD(pthread_rwlockattr_destroy, "2.2.5");
OLD(pthread_rwlockattr_init, "2.2.5");
OLD(pthread_rwlockattr_setpshared, "2.2.5");
OLD(pthread_setspecific, "2.2.5");
OLD(pthread_spin_destroy, "2.2.5");
OLD(pthread_spin_init, "2.2.5");
OLD(pthread_spin_lock, "2.2.5");
OLD(pthread_spin_trylock, "2.2.5");
OLD(pthread_spin_unlock, "2.2.5");
OLD(sem_destroy, "2.2.5");
OLD(sem_init, "2.2.5");
OLD(sem_post, "2.2.5");
OLD(sem_timedwait, "2.2.5");
OLD(sem_trywait, "2.2.5");
OLD(sem_wait, "2.2.5");
OLD(shm_open, "2.2.5");
OLD(shm_unlink, "2.2.5");

#pragma GCC visibility push(hidden)

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
