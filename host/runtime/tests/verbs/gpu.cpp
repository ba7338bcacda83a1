/* Memory of a GPU of this process, which is registered by its address: copied by CUDA's driver, which the
 * program has loaded. */
#include "stand_in.h"

#include <dlfcn.h>

#include <map>

namespace {

using result = int;
struct driver {
  result (*attribute)(void *out, int which, uint64_t at);
  result (*retain)(void **context, int device);
  result (*push)(void *context);
  result (*pop)(void **context);
  result (*make_stream)(void **stream, unsigned flags);
  result (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
  result (*finish)(void *stream);
  bool whole;
};

constexpr int memory_type = 2, device_ordinal = 9, type_device = 2;
constexpr unsigned non_blocking = 1;

const driver &cuda() {
  static const driver all = [] {
    driver d = {};
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    d.whole = library != nullptr;
    const auto find = [&](auto &to, const char *name) {
      to = library ? reinterpret_cast<std::decay_t<decltype(to)>>(dlsym(library, name)) : nullptr;
      d.whole = d.whole && to;
    };
    find(d.attribute, "cuPointerGetAttribute");
    find(d.retain, "cuDevicePrimaryCtxRetain");
    find(d.push, "cuCtxPushCurrent_v2");
    find(d.pop, "cuCtxPopCurrent_v2");
    find(d.make_stream, "cuStreamCreate");
    find(d.copy, "cuMemcpyAsync");
    find(d.finish, "cuStreamSynchronize");
    return d;
  }();
  return all;
}

}  // namespace

bool is_gpu(uint64_t at) {
  unsigned type = 0;
  return cuda().whole && cuda().attribute(&type, memory_type, at) == 0 && type == type_device;
}

/* Waited for, on a stream of the card's own, so that it waits for no kernel. */
bool copy_gpu(uint64_t to, uint64_t from, size_t bytes, uint64_t of_gpu) {
  int device = -1;
  if (!cuda().whole || cuda().attribute(&device, device_ordinal, of_gpu) != 0) return false;
  static auto &streams = *new std::map<int, std::pair<void *, void *>>; /* of the card's thread alone */
  auto &[context, stream] = streams[device];
  if (!context && cuda().retain(&context, device) != 0) return false;
  if (cuda().push(context) != 0) return false;
  bool done = stream || cuda().make_stream(&stream, non_blocking) == 0;
  done = done && cuda().copy(to, from, bytes, stream) == 0 && cuda().finish(stream) == 0;
  void *popped;
  cuda().pop(&popped);
  return done;
}
