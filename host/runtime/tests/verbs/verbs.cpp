/* Devices, protection domains, memory, registers: the libraries' entry points. */
#include "stand_in.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

table shared;
std::mutex everything;
/* Never destroyed, as the card's thread runs until the process has ended. */
std::set<object *> &objects = *new std::set<object *>;
static std::vector<std::string> &said = *new std::vector<std::string>;

void tell(uint32_t code, const std::string &text) {
  said.push_back(text);
  fprintf(stderr, "the stand-in card: %s (%#x)\n", text.c_str(), code);
}

/* For tests: all that was said so far, a line each, which is forgotten then. */
extern "C" size_t stand_in_told(char *out, size_t room) {
  std::lock_guard<std::mutex> hold(everything);
  std::string all;
  for (const std::string &one : said) all += one + "\n";
  said.clear();
  const size_t n = all.size() < room ? all.size() : room;
  memcpy(out, all.data(), n);
  return n;
}

/* For tests: how many completion queues and pairs there are. */
extern "C" size_t stand_in_objects() {
  std::lock_guard<std::mutex> hold(everything);
  return objects.size();
}

constexpr int cards_known = 8;

static model *cards() {
  static model *all = [] {
    static model made[cards_known] = {};
    struct facts { const char *name; bool mlx5, devx, ethernet, v2; int active, ports, pairs; };
    const facts list[cards_known] = {
        {"qedr0", false, false, true, true, 1, 1, pairs}, {"mlx5_0", true, true, false, false, 0, 1, pairs},
        {"mlx5_1", true, true, true, true, 2, 2, pairs},  {"mlx5_2", true, true, false, false, 1, 1, pairs},
        {"mlx5_3", true, true, true, true, 1, 1, 2},      {"mlx5_4", true, false, true, true, 1, 1, pairs},
        {"mlx5_5", true, true, true, false, 1, 1, pairs}, {"mlx5_6", true, true, true, true, 1, 1, pairs},
    };
    for (int i = 0; i < cards_known; ++i) {
      const facts &f = list[i];
      snprintf(made[i].name, sizeof made[i].name, "%s", f.name);
      made[i].mlx5 = f.mlx5, made[i].devx = f.devx, made[i].ethernet = f.ethernet, made[i].v2 = f.v2;
      /* One of those that can be opened has none. */
      made[i].atomics = std::string(f.name) != "mlx5_5";
      made[i].active_port = f.active, made[i].ports = f.ports, made[i].pairs = f.pairs;
    }
    return made;
  }();
  return all;
}

void make_gid(unsigned char gid[16], bool v2) {
  memset(gid, 0, 16);
  gid[0] = v2 ? 0x20 : 0xfe;
  gid[1] = v2 ? 0x01 : 0x80;
  const uint64_t at = reinterpret_cast<uint64_t>(&shared) >> 12;
  const uint64_t both = uint64_t(getpid()) << 40 | at;
  memcpy(gid + 8, &both, 8);
}

bool read_gid(const unsigned char gid[16], int &pid, uint64_t &at) {
  uint64_t both;
  memcpy(&both, gid + 8, 8);
  pid = int(both >> 40);
  at = (both & ((uint64_t(1) << 40) - 1)) << 12;
  return pid != 0 && at != 0;
}

void mac_of(const unsigned char gid[16], unsigned char mac[6]) {
  mac[0] = 0x02;
  for (int i = 1; i < 6; ++i) mac[i] = gid[8 + i] ^ gid[i] ^ 0x5a;
}

/* ---- devices ---- */

extern "C" {

struct ibv_device **ibv_get_device_list(int *count) {
  auto **list = static_cast<ibv_device **>(calloc(cards_known + 1, sizeof(ibv_device *)));
  /* STAND_IN_CARDS: this machine has these alone, with commas around each name. STAND_IN_WITHOUT: so do PEs
   * of these numbers, which have none, likewise. */
  const char *only = getenv("STAND_IN_CARDS"), *without = getenv("STAND_IN_WITHOUT"), *pe = getenv("RUSHMEM_PE");
  const bool none = without && pe && strstr(without, (std::string(",") + pe + ",").c_str());
  int n = 0;
  for (int i = 0; i < cards_known && !none; ++i) {
    const std::string name = std::string(",") + cards()[i].name + ",";
    if (!only || !*only || strstr(only, name.c_str())) list[n++] = cards() + i;
  }
  if (count) *count = n;
  return list;
}
void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *card) { return card->name; }
bool mlx5dv_is_supported(struct ibv_device *card) { return static_cast<model *>(card)->mlx5; }

struct ibv_context *mlx5dv_open_device(struct ibv_device *card, struct mlx5dv_context_attr *attr) {
  auto *of = static_cast<model *>(card);
  if (attr->comp_mask != 0 || attr->flags != MLX5DV_CONTEXT_FLAGS_DEVX || !of->mlx5 || !of->devx) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  /* Other processes of the job read and write this one's memory. */
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  auto *made = new context();
  made->device = card;
  made->card = of;
  start_card();
  return made;
}

int ibv_close_device(struct ibv_context *given) {
  auto *of = static_cast<context *>(given);
  std::lock_guard<std::mutex> hold(everything);
  if (!of->alive.empty()) {
    tell(0x100, "a device is closed, and " + std::to_string(of->alive.size()) + " of its objects are alive");
    errno = EBUSY;
    return -1;
  }
  delete of;
  return 0;
}

int ibv_query_device(struct ibv_context *given, struct ibv_device_attr *attr) {
  memset(attr, 0, sizeof *attr);
  attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
  attr->atomic_cap = static_cast<context *>(given)->card->atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  attr->phys_port_cnt = uint8_t(static_cast<context *>(given)->card->ports);
  return 0;
}

int ibv_query_port(struct ibv_context *given, uint8_t port, struct _compat_ibv_port_attr *out) {
  const model *of = static_cast<context *>(given)->card;
  if (port < 1 || port > of->ports) return EINVAL;
  ibv_port_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.state = port == of->active_port ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = of->ethernet ? IBV_MTU_1024 : IBV_MTU_4096;
  attr.gid_tbl_len = 8;
  attr.lid = of->ethernet ? 0 : 7;
  attr.link_layer = of->ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
  /* The old structure ends before the newer flags. */
  memcpy(static_cast<void *>(out), &attr, offsetof(ibv_port_attr, port_cap_flags2));
  return 0;
}

int _ibv_query_gid_ex(struct ibv_context *given, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t size) {
  const model *of = static_cast<context *>(given)->card;
  if (flags != 0 || size != sizeof *entry || int(port) != of->active_port) return EINVAL;
  /* This port's interface has no address. */
  if (std::string(of->name) == "mlx5_6") return ENODATA;
  /* Ethernet: v1 first, then a gap, then v2. */
  const bool v2 = index == 3 && of->ethernet && of->v2;
  if (index != 0 && !v2) return ENODATA;
  memset(entry, 0, sizeof *entry);
  make_gid(entry->gid.raw, v2);
  entry->gid_index = index;
  entry->port_num = port;
  entry->gid_type = v2 ? IBV_GID_TYPE_ROCE_V2 : of->ethernet ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_IB;
  return 0;
}

/* ---- domains and memory ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *given) {
  auto *of = static_cast<context *>(given);
  std::lock_guard<std::mutex> hold(everything);
  static uint32_t next = 0x10;
  auto *made = new domain();
  made->context = given;
  made->number = ++next;
  of->alive.insert(made);
  of->domains.insert(made);
  return made;
}

int ibv_dealloc_pd(struct ibv_pd *given) {
  auto *pd = static_cast<domain *>(given);
  std::lock_guard<std::mutex> hold(everything);
  if (pd->users != 0) {
    tell(0x101, "a protection domain is freed that is in use");
    errno = EBUSY;
    return EBUSY;
  }
  static_cast<context *>(given->context)->alive.erase(pd);
  static_cast<context *>(given->context)->domains.erase(pd);
  delete pd;
  return 0;
}

/* What all registrations have in common; null: it is right. */
static const char *wrong_access(domain *pd, uint64_t iova, size_t bytes, unsigned access) {
  const unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const bool changes = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  if (bytes == 0) return "no memory is registered";
  if (access & ~known) return "access that nothing here asks for";
  if (changes && !(access & IBV_ACCESS_LOCAL_WRITE)) return "a remote write without a local one";
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) && !static_cast<context *>(pd->context)->card->atomics) return "atomics, which this card has not";
  if (iova + bytes < iova) return "addresses past the last one";
  return nullptr;
}

/* Fills a free entry; null: there is none. */
static memory_region *enter(domain *pd, char *address, size_t bytes, uint64_t iova, unsigned access) {
  static uint8_t variant;
  for (uint32_t i = 1; i < regions; ++i) {
    region &r = shared.all_regions[i];
    if (r.key != 0) continue;
    r.access = access, r.iova = iova, r.bytes = bytes, r.address = reinterpret_cast<uint64_t>(address);
    r.gpu = is_gpu(r.address);
    r.key = i << 8 | ++variant;
    auto *made = new memory_region();
    made->context = pd->context, made->pd = pd, made->addr = address, made->length = bytes;
    made->lkey = made->rkey = r.key;
    ++pd->users;
    static_cast<context *>(pd->context)->alive.insert(made);
    return made;
  }
  errno = ENOMEM;
  return nullptr;
}

static ibv_mr *refuse_memory(const char *call, const char *wrong) {
  tell(0x102, std::string(call) + ": " + wrong);
  errno = EINVAL;
  return nullptr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *given, void *address, size_t bytes, uint64_t iova, unsigned access) {
  auto *pd = static_cast<domain *>(given);
  std::lock_guard<std::mutex> hold(everything);
  const char *wrong = address ? wrong_access(pd, iova, bytes, access) : "no memory is registered";
  if (!wrong && ((reinterpret_cast<uint64_t>(address) ^ iova) & 4095)) wrong = "an address of another place in its page";
  /* Pinning fails where nothing is mapped. */
  unsigned char in[1];
  char *page = reinterpret_cast<char *>(reinterpret_cast<uint64_t>(address) & ~uint64_t(4095));
  if (!wrong && (mincore(page, 1, in) != 0 || mincore(page + (bytes - 1) / 4096 * 4096, 1, in) != 0)) wrong = "memory that is not mapped";
  if (wrong) return refuse_memory("ibv_reg_mr_iova2", wrong);
  /* STAND_IN_LOCKED: so many bytes may be pinned (`ulimit -l`). */
  const char *limit = getenv("STAND_IN_LOCKED");
  static uint64_t pinned;
  if (limit && *limit && pinned + bytes > strtoull(limit, nullptr, 10)) {
    errno = ENOMEM;
    return nullptr;
  }
  memory_region *made = enter(pd, static_cast<char *>(address), bytes, iova, access);
  if (made) pinned += bytes;
  return made;
}

/* As the kernel takes them: a descriptor of memory, large enough, and name and offset alike within a page. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *given, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access) {
  auto *pd = static_cast<domain *>(given);
  std::lock_guard<std::mutex> hold(everything);
  const char *wrong = wrong_access(pd, iova, bytes, unsigned(access));
  struct stat about;
  if (!wrong && ((offset ^ iova) & 4095)) wrong = "an offset of another place in its page";
  if (!wrong && (fstat(fd, &about) != 0 || about.st_size <= 0)) wrong = "a descriptor that is none of memory";
  if (!wrong && (offset > uint64_t(about.st_size) || bytes > uint64_t(about.st_size) - offset)) wrong = "more than the descriptor's memory";
  if (wrong) return refuse_memory("ibv_reg_dmabuf_mr", wrong);
  void *mapped = mmap(nullptr, size_t(about.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return nullptr;
  memory_region *made = enter(pd, static_cast<char *>(mapped) + offset, bytes, iova, unsigned(access));
  if (!made) return nullptr;
  made->mapped = mapped, made->mapped_bytes = size_t(about.st_size);
  return made;
}

int ibv_dereg_mr(struct ibv_mr *given) {
  std::lock_guard<std::mutex> hold(everything);
  auto *mr = static_cast<memory_region *>(given);
  memset(&shared.all_regions[mr->lkey >> 8], 0, sizeof(region));
  --static_cast<domain *>(mr->pd)->users;
  static_cast<context *>(mr->context)->alive.erase(mr);
  if (mr->mapped) munmap(mr->mapped, mr->mapped_bytes);
  delete mr;
  return 0;
}

struct path : ibv_ah {
  mlx5_wqe_av vector;
};

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
  const model *of = static_cast<context *>(pd->context)->card;
  int pid;
  uint64_t at;
  if (!attr->is_global || attr->port_num != of->active_port || attr->grh.sgid_index != (of->v2 ? 3 : 0) ||
      attr->grh.hop_limit == 0 || !read_gid(attr->grh.dgid.raw, pid, at)) {
    std::lock_guard<std::mutex> hold(everything);
    tell(0x103, "ibv_create_ah: no way leads there");
    errno = EHOSTUNREACH;
    return nullptr;
  }
  auto *made = new path();
  made->context = pd->context, made->pd = pd;
  memcpy(made->vector.rgid, attr->grh.dgid.raw, 16);
  mac_of(made->vector.rgid, made->vector.rmac);
  return made;
}
int ibv_destroy_ah(struct ibv_ah *given) {
  delete static_cast<path *>(given);
  return 0;
}

int mlx5dv_init_obj(struct mlx5dv_obj *obj, uint64_t what) {
  if (what == MLX5DV_OBJ_PD) {
    obj->pd.out->pdn = static_cast<domain *>(obj->pd.in)->number;
    return 0;
  }
  if (what == MLX5DV_OBJ_AH) {
    obj->ah.out->av = &static_cast<path *>(obj->ah.in)->vector;
    return 0;
  }
  return EINVAL;
}

/* ---- DEVX ---- */

int mlx5dv_devx_query_eqn(struct ibv_context *, uint32_t vector, uint32_t *eqn) {
  if (vector != 0) return EINVAL;
  *eqn = 5;
  return 0;
}

struct mlx5dv_devx_uar *mlx5dv_devx_alloc_uar(struct ibv_context *given, uint32_t flags) {
  if (flags != MLX5DV_UAR_ALLOC_TYPE_NC) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  std::lock_guard<std::mutex> hold(everything);
  static uint32_t next = 0x200;
  auto *made = new uar();
  made->owner = static_cast<context *>(given);
  made->base_addr = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  made->reg_addr = static_cast<char *>(made->base_addr) + 0x800;
  made->page_id = ++next;
  made->owner->alive.insert(made);
  made->owner->uars.insert(made);
  return made;
}

void mlx5dv_devx_free_uar(struct mlx5dv_devx_uar *given) {
  auto *page = static_cast<uar *>(given);
  std::lock_guard<std::mutex> hold(everything);
  if (page->users != 0) return tell(0x104, "a register is freed that is in use");
  page->owner->alive.erase(page);
  page->owner->uars.erase(page);
  munmap(page->base_addr, 4096);
  delete page;
}

struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg(struct ibv_context *given, void *start, size_t bytes, uint32_t access) {
  std::lock_guard<std::mutex> hold(everything);
  if (!start || bytes == 0 || access != IBV_ACCESS_LOCAL_WRITE) {
    tell(0x105, "mlx5dv_devx_umem_reg: no memory, or access that the card needs and was not given");
    errno = EINVAL;
    return nullptr;
  }
  static uint32_t next = 0x30;
  auto *made = new umem();
  made->umem_id = ++next;
  made->owner = static_cast<context *>(given);
  made->start = static_cast<char *>(start), made->bytes = bytes;
  made->owner->alive.insert(made);
  made->owner->umems.insert(made);
  return made;
}

int mlx5dv_devx_umem_dereg(struct mlx5dv_devx_umem *given) {
  auto *memory = static_cast<umem *>(given);
  std::lock_guard<std::mutex> hold(everything);
  if (memory->users != 0) {
    tell(0x106, "memory of queues is given back that is in use");
    errno = EBUSY;
    return EBUSY;
  }
  memory->owner->alive.erase(memory);
  memory->owner->umems.erase(memory);
  delete memory;
  return 0;
}

static void answer(void *out, verdict v, uint32_t number) {
  auto *bytes = static_cast<unsigned char *>(out);
  memset(bytes, 0, 16);
  bytes[0] = v.status;
  const uint32_t words[2] = {htobe32(v.syndrome), htobe32(number)};
  memcpy(bytes + 4, words, 8);
}

struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *given, const void *in, size_t bytes, void *out,
                                               size_t room) {
  std::lock_guard<std::mutex> hold(everything);
  object *made = nullptr;
  const verdict v = room < 16 ? verdict{0x51, 0x107} : create(static_cast<context *>(given), in, bytes, made);
  if (room >= 16) answer(out, v, made ? made->number : 0);
  if (!made) errno = EREMOTEIO;
  return reinterpret_cast<mlx5dv_devx_obj *>(made);
}

int mlx5dv_devx_obj_modify(struct mlx5dv_devx_obj *of, const void *in, size_t bytes, void *out, size_t room) {
  std::lock_guard<std::mutex> hold(everything);
  const verdict v = room < 16 ? verdict{0x51, 0x108} : modify(reinterpret_cast<object *>(of), in, bytes);
  if (room >= 16) answer(out, v, 0);
  return v.status ? EREMOTEIO : 0;
}

int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *given) {
  std::lock_guard<std::mutex> hold(everything);
  auto *of = reinterpret_cast<object *>(given);
  if (of->users != 0) {
    tell(0x109, "a completion queue is destroyed that a pair uses");
    errno = EBUSY;
    return EBUSY;
  }
  if (of->what == kind::qp) {
    --of->completions->users;
    --of->pd->users;
    memset(of->seen, 0, sizeof *of->seen);
  }
  --of->memory->users;
  --of->page->users;
  of->owner->alive.erase(of);
  objects.erase(of);
  delete of;
  return 0;
}

}  // extern "C"
