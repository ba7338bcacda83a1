/* How a kernel is described to the host: its name, a function that calls it with an array of pointers to its
 * arguments, and what each parameter is. The types come from the compiler itself (`decltype(&kernel)`), so
 * that typedefs, macros and templates cost nothing. The list itself is appended to the user's source by the
 * compiler driver. */
#ifndef RUSHMEM_CPU_KERNEL_H
#define RUSHMEM_CPU_KERNEL_H

#include <exception>
#include <stdio.h>
#include <type_traits>
#include <utility>

#include "rushmem_cpu/hooks.h"

/* Kinds as RUSHMEM_ARG_* of rushmem.h. */
struct rushmem_cpu_param {
  int32_t kind;
  uint32_t size;
  int32_t pointee_kind;
  uint32_t pointee_size;
};

struct rushmem_cpu_kernel {
  const char *name;
  void (*run)(void *const *args);
  const rushmem_cpu_param *params;
  uint32_t n_params;
};

namespace rushmem_cpu_detail {

template <class T> constexpr int32_t kind_of() {
  if constexpr (std::is_pointer<T>::value) return 0;
  else if constexpr (std::is_enum<T>::value) return kind_of<std::underlying_type_t<T>>();
  else if constexpr (std::is_same<T, bool>::value) return 2;
  else if constexpr (std::is_integral<T>::value) return std::is_signed<T>::value ? 1 : 2;
  else if constexpr (std::is_floating_point<T>::value) return 3;
  else return 4;
}

template <class T, class = void> struct size_or_zero {
  static constexpr uint32_t value = 0;
};
template <class T> struct size_or_zero<T, std::void_t<decltype(sizeof(T))>> {
  static constexpr uint32_t value =
      std::is_void<T>::value || std::is_function<T>::value ? 0 : (uint32_t)sizeof(T);
};

template <class T> constexpr rushmem_cpu_param describe() {
  using Bare = std::remove_cv_t<T>;
  rushmem_cpu_param param = {kind_of<Bare>(), (uint32_t)sizeof(T), 5, 0};
  if constexpr (std::is_pointer<Bare>::value) {
    using Pointee = std::remove_cv_t<std::remove_pointer_t<Bare>>;
    if constexpr (size_or_zero<Pointee>::value != 0) {
      param.pointee_kind = kind_of<Pointee>() == 4 ? 5 : kind_of<Pointee>();
      param.pointee_size = size_or_zero<Pointee>::value;
    }
  }
  return param;
}

template <class F, F *function> struct registrar {
  static_assert(sizeof(F *) == 0, "a kernel returns void");
};
template <class... A, void (*function)(A...)> struct registrar<void(A...), function> {
  /* One more than needed, as an empty array is none. */
  static constexpr rushmem_cpu_param params[sizeof...(A) + 1] = {describe<A>()..., rushmem_cpu_param{}};

  template <size_t... I> static void call(void *const *args, std::index_sequence<I...>) {
    (void)args;
    function(*static_cast<std::remove_reference_t<A> *>(args[I])...);
  }
  static void run(void *const *args) {
    char text[512];
    try {
      call(args, std::index_sequence_for<A...>{});
      return;
    } catch (const std::exception &thrown) {
      snprintf(text, sizeof text, "a C++ exception left the kernel: %s", thrown.what());
    } catch (...) {
      snprintf(text, sizeof text, "a C++ exception left the kernel");
    }
    rushmem_cpu_die(text);
  }
  static constexpr rushmem_cpu_kernel entry(const char *name) {
    return {name, run, params, (uint32_t)sizeof...(A)};
  }
};

}  // namespace rushmem_cpu_detail

#endif
