/* Commands, read as the firmware reads them: each bit is a field's or is zero. */
#include "stand_in.h"

#include <atomic>
#include <vector>

namespace {

/* Reads fields, and knows which bits were read. */
class reader {
 public:
  reader(const void *in, size_t bytes) : in_(static_cast<const unsigned char *>(in)), bytes_(bytes), read_(bytes) {}

  uint64_t take(size_t at, size_t bits) {
    uint64_t value = 0;
    for (size_t i = at; i < at + bits; ++i) {
      value = value << 1 | (in_[i / 8] >> (7 - i % 8) & 1);
      read_[i / 8] |= uint8_t(1 << (7 - i % 8));
    }
    return value;
  }
  void take_bytes(size_t at, unsigned char *out, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<unsigned char>(take(at + 8 * i, 8));
  }
  /* The first bit that is set and is no field's; -1: none. */
  long left() const {
    for (size_t i = 0; i < bytes_; ++i)
      for (int b = 0; b < 8; ++b)
        if ((in_[i] & ~read_[i]) >> (7 - b) & 1) return long(8 * i + b);
    return -1;
  }

 private:
  const unsigned char *in_;
  size_t bytes_;
  std::vector<uint8_t> read_;
};

verdict wrong(uint8_t status, uint32_t code, const std::string &text) {
  tell(code, text);
  return {status, code};
}

constexpr uint8_t bad_op = 0x02, bad_param = 0x03, bad_resource = 0x05, no_more = 0x0f, bad_state = 0x10,
                  bad_length = 0x50;
constexpr size_t command_bytes = 272;

template <class T, class Match>
T *find(const std::set<T *> &all, Match match) {
  for (T *one : all)
    if (match(*one)) return one;
  return nullptr;
}

umem *find_umem(context *owner, uint64_t id) {
  return find(owner->umems, [&](const umem &m) { return m.umem_id == id; });
}
uar *find_uar(context *owner, uint64_t page) {
  return find(owner->uars, [&](const uar &u) { return u.page_id == page; });
}
object *find_cq(context *owner, uint64_t number) {
  return find(objects, [&](const object &o) { return o.owner == owner && o.what == kind::cq && o.number == number; });
}

bool within(const umem &m, uint64_t offset, uint64_t bytes) { return offset <= m.bytes && bytes <= m.bytes - offset; }

/* Pages of the card's in the memory: an offset must begin one. */
bool begins_page(const umem &m, uint64_t offset) {
  return (reinterpret_cast<uint64_t>(m.start) + offset) % 4096 == 0 && reinterpret_cast<uint64_t>(m.start) % 4096 == 0;
}

/* What completion queues and pairs have in common. */
struct parts {
  umem *memory;
  uar *page;
};

verdict common(context *owner, reader &r, uint64_t memory, uint64_t record_memory, bool valid, uint64_t offset,
               uint64_t bytes, uint64_t record, uint64_t page, const char *what, parts &out) {
  const std::string who = what;
  out.memory = find_umem(owner, memory);
  if (!out.memory || !valid) return wrong(bad_resource, 0x201, who + ": its memory is none that was registered");
  if (record_memory != memory) return wrong(bad_resource, 0x202, who + ": its record is in memory that was not registered");
  if (!begins_page(*out.memory, offset)) return wrong(bad_param, 0x203, who + ": its memory begins at " + std::to_string(offset) + ", in the middle of a page");
  if (!within(*out.memory, offset, bytes)) return wrong(bad_param, 0x204, who + ": it reaches past the registered memory");
  if (record % 8 != 0 || !within(*out.memory, record, 8)) return wrong(bad_param, 0x205, who + ": its record is not within the memory, or not aligned");
  out.page = find_uar(owner, page);
  if (!out.page) return wrong(bad_resource, 0x206, who + ": page " + std::to_string(page) + " is no register's");
  if (r.left() >= 0) return wrong(bad_param, 0x207, who + ": bit " + std::to_string(r.left()) + " is set, and is none that this card takes");
  return {0, 0};
}

uint32_t new_number(context *owner) {
  static uint32_t next = 0x40;
  (void)owner;
  return ++next;
}

verdict create_cq(context *owner, reader &r, object *&made) {
  const uint64_t offset = r.take(0x280, 64), memory = r.take(0x2c0, 32), valid = r.take(0x2e0, 1);
  const size_t c = 0x80;
  const uint64_t record_valid = r.take(c + 6, 1), size = r.take(c + 8, 3), collapsed = r.take(c + 11, 1);
  const uint64_t ignore = r.take(c + 14, 1), record_memory = r.take(c + 0x20, 32), log = r.take(c + 0x60 + 3, 5);
  const uint64_t page = r.take(c + 0x60 + 8, 24), eq = r.take(c + 0xa0 + 24, 8), log_page = r.take(c + 0xc0 + 3, 5);
  const uint64_t record = r.take(c + 0x1c0, 64);
  if (size != 0 || log_page != 0) return wrong(bad_param, 0x210, "CREATE_CQ: entries of 64 bytes in pages of 4 KiB are what this card has");
  if (!ignore) return wrong(bad_param, 0x211, "CREATE_CQ: nobody tells of entries that were read, and the queue would overrun");
  if (eq != 5) return wrong(bad_resource, 0x212, "CREATE_CQ: queue of events " + std::to_string(eq) + " is none");
  parts of;
  const verdict v = common(owner, r, memory, record_memory, valid && record_valid, offset, uint64_t(64) << log, record, page, "CREATE_CQ", of);
  if (v.status) return v;
  made = new object();
  made->what = kind::cq;
  made->memory = of.memory, made->page = of.page;
  made->entries = of.memory->start + offset;
  made->size = uint32_t(1) << log, made->collapsed = collapsed;
  made->record = of.memory->start + record;
  return v;
}

verdict create_qp(context *owner, reader &r, object *&made) {
  const uint64_t offset = r.take(0x800, 64), memory = r.take(0x840, 32), valid = r.take(0x860, 1);
  const size_t c = 0xc0;
  const uint64_t state = r.take(c, 4), service = r.take(c + 8, 8), migration = r.take(c + 0x13, 2);
  const uint64_t pd = r.take(c + 0x20 + 8, 24), log_rq = r.take(c + 0x40 + 9, 4), log_sq = r.take(c + 0x40 + 17, 4);
  const uint64_t page = r.take(c + 0x60 + 8, 24), send = r.take(c + 0x3e0 + 8, 24), receive = r.take(c + 0x4e0 + 8, 24);
  const uint64_t record = r.take(c + 0x500, 64), receives = r.take(c + 0x560 + 5, 3);
  const uint64_t record_valid = r.take(c + 0x680 + 3, 1), record_memory = r.take(c + 0x720, 32);
  if (state != rst || service != 0) return wrong(bad_param, 0x220, "CREATE_QP: no reliable connection that is reset");
  if (migration != 3) return wrong(bad_param, 0x221, "CREATE_QP: path migration " + std::to_string(migration));
  if (receives != 3 || log_rq != 0) return wrong(bad_param, 0x222, "CREATE_QP: a queue to receive, of which there is no memory");
  domain *of_pd = find(owner->domains, [&](const domain &d) { return d.number == pd; });
  if (!of_pd) return wrong(bad_resource, 0x223, "CREATE_QP: protection domain " + std::to_string(pd) + " is none");
  object *cq = find_cq(owner, send);
  if (!cq || receive != send) return wrong(bad_resource, 0x224, "CREATE_QP: completion queues " + std::to_string(send) + " and " + std::to_string(receive));
  int alive = 0;
  for (object *o : objects) alive += o->owner->card == owner->card && o->what == kind::qp;
  if (alive >= owner->card->pairs) return wrong(no_more, 0x225, "CREATE_QP: this firmware has no more pairs");
  parts of;
  const verdict v = common(owner, r, memory, record_memory, valid && record_valid, offset, uint64_t(64) << log_sq, record, page, "CREATE_QP", of);
  if (v.status) return v;
  for (int i = 1; i < pairs && !made; ++i) {
    if (shared.all_pairs[i].number != 0) continue;
    made = new object();
    made->seen = shared.all_pairs + i;
    static uint32_t variant = 0;
    made->number = uint32_t(++variant % 0xfff) << 12 | uint32_t(i);
  }
  if (!made) return wrong(no_more, 0x225, "CREATE_QP: this firmware has no more pairs");
  made->what = kind::qp;
  made->memory = of.memory, made->page = of.page;
  made->completions = cq, ++cq->users;
  made->pd = of_pd, ++of_pd->users;
  made->slots = of.memory->start + offset, made->count = uint32_t(1) << log_sq;
  made->record = of.memory->start + record;
  made->seen->number = made->number;
  return v;
}

}  // namespace

verdict create(context *owner, const void *in, size_t bytes, object *&made) {
  if (bytes != command_bytes) return wrong(bad_length, 0x200, "a command of " + std::to_string(bytes) + " bytes");
  reader r(in, bytes);
  const uint64_t opcode = r.take(0, 16);
  verdict v{0, 0};
  if (opcode == 0x400) v = create_cq(owner, r, made);
  else if (opcode == 0x500) v = create_qp(owner, r, made);
  else return wrong(bad_op, 0x208, "opcode " + std::to_string(opcode) + " makes nothing here");
  if (!made) return v;
  if (made->number == 0) made->number = new_number(owner);
  made->owner = owner;
  ++made->memory->users, ++made->page->users;
  owner->alive.insert(made);
  objects.insert(made);
  return v;
}

void publish(object *pair) {
  __atomic_store_n(&pair->seen->state, pair->state, __ATOMIC_RELEASE);
}

static verdict to_init(object *of, reader &r) {
  const size_t c = 0xc0, path = c + 0xc0;
  const uint64_t migration = r.take(c + 0x13, 2), port = r.take(path + 0x128, 8), key = r.take(path + 0x10, 16);
  of->seen->reads = uint32_t(r.take(c + 0x490, 1)), of->seen->writes = uint32_t(r.take(c + 0x491, 1));
  const uint64_t atomics = r.take(c + 0x492, 1), mode = r.take(c + 0x48c, 4);
  of->seen->atomics = uint32_t(atomics);
  if (migration != 3 || key != 0) return wrong(bad_param, 0x231, "RST2INIT_QP: path migration " + std::to_string(migration));
  if (mode != atomics || (atomics && !of->owner->card->atomics)) return wrong(bad_param, 0x233, "RST2INIT_QP: atomics " + std::to_string(atomics) + " in mode " + std::to_string(mode) + ", which this card has not");
  if (int(port) != of->owner->card->active_port) return wrong(bad_param, 0x232, "RST2INIT_QP: port " + std::to_string(port) + " is not active");
  of->state = init;
  return {0, 0};
}

/* Of the last pair that was connected: traffic class, DSCP, Ethernet priority, service level. */
static std::atomic<uint32_t> classes;

extern "C" uint32_t stand_in_classes() {
  return classes;
}

static verdict to_rtr(object *of, reader &r) {
  const model *card = of->owner->card;
  const size_t c = 0xc0, path = c + 0xc0;
  const uint64_t mtu = r.take(c + 0x40, 3), message = r.take(c + 0x43, 5), port = r.take(path + 0x128, 8);
  of->remote = uint32_t(r.take(c + 0xa8, 24));
  of->seen->remote = of->remote;
  of->seen->next_receive = uint32_t(r.take(c + 0x4a8, 24));
  const uint64_t reads = r.take(c + 0x488, 3), timer = r.take(c + 0x4a3, 5);
  const uint64_t global = r.take(path + 0x28, 1), lid = r.take(path + 0x30, 16), source = r.take(path + 0x48, 8);
  const uint64_t hops = r.take(path + 0x58, 8), udp = r.take(path + 0x110, 16);
  const uint64_t traffic = r.take(path + 0x64, 8), dscp = r.take(path + 0x10a, 6);
  const uint64_t priority = r.take(path + 0x121, 3), level = r.take(path + 0x124, 4);
  unsigned char gid[16], mac[6], found[6];
  r.take_bytes(path + 0x80, gid, 16);
  r.take_bytes(path + 0x130, found, 6);
  if (mtu < 1 || mtu > (card->ethernet ? 3u : 5u)) return wrong(bad_param, 0x241, "INIT2RTR_QP: MTU " + std::to_string(mtu) + " is more than the port's");
  if (message > 30) return wrong(bad_param, 0x242, "INIT2RTR_QP: messages of 2^" + std::to_string(message) + " bytes");
  if (int(port) != card->active_port) return wrong(bad_param, 0x243, "INIT2RTR_QP: port " + std::to_string(port) + " is not active");
  if (of->remote == 0) return wrong(bad_param, 0x244, "INIT2RTR_QP: no pair of the peer's");
  if (reads > 4 || timer == 0) return wrong(bad_param, 0x245, "INIT2RTR_QP: READs 2^" + std::to_string(reads) + ", timer " + std::to_string(timer));
  if (card->ethernet ? level != 0 : traffic || priority) return wrong(bad_param, 0x24b, "INIT2RTR_QP: a class of packets that this kind of link has not");
  if (dscp != (card->ethernet && card->v2 ? traffic >> 2 : 0)) return wrong(bad_param, 0x24c, "INIT2RTR_QP: DSCP " + std::to_string(dscp) + " in traffic class " + std::to_string(traffic));
  classes = uint32_t(traffic << 24 | dscp << 16 | priority << 8 | level);
  if (!card->ethernet) {
    if (global || lid != 7 || source || hops || udp) return wrong(bad_param, 0x246, "INIT2RTR_QP: LID " + std::to_string(lid) + " is nobody's");
    /* The port's only LID: this process. */
    make_gid(of->gid, false);
  } else {
    mac_of(gid, mac);
    int pid;
    uint64_t at;
    if (!global || lid || !read_gid(gid, pid, at)) return wrong(bad_param, 0x247, "INIT2RTR_QP: a path over Ethernet without a GID");
    if (memcmp(mac, found, 6) != 0) return wrong(bad_param, 0x248, "INIT2RTR_QP: a MAC that is not that GID's");
    if (source != (card->v2 ? 3 : 0) || hops == 0) return wrong(bad_param, 0x249, "INIT2RTR_QP: GID " + std::to_string(source) + " of this port is not set");
    if (card->v2 ? udp < 0xc000 : udp != 0) return wrong(bad_param, 0x24a, "INIT2RTR_QP: UDP port " + std::to_string(udp));
    memcpy(of->gid, gid, 16);
  }
  of->state = rtr;
  return {0, 0};
}

static verdict to_rts(object *of, reader &r) {
  const size_t c = 0xc0;
  of->send_psn = uint32_t(r.take(c + 0x3c8, 24));
  const uint64_t reads = r.take(c + 0x388, 3), retries = r.take(c + 0x38d, 3), timeout = r.take(c + 0xc0 + 0x40, 5);
  r.take(c + 0x390, 3);
  if (reads > 4 || retries == 0 || timeout == 0) return wrong(bad_param, 0x251, "RTR2RTS_QP: a lost packet would be waited for for ever");
  of->state = rts;
  return {0, 0};
}

verdict modify(object *pair, const void *in, size_t bytes) {
  if (bytes != command_bytes) return wrong(bad_length, 0x200, "a command of " + std::to_string(bytes) + " bytes");
  reader r(in, bytes);
  const uint64_t opcode = r.take(0, 16), number = r.take(0x40 + 8, 24);
  if (opcode < 0x502 || opcode > 0x504) return wrong(bad_op, 0x208, "opcode " + std::to_string(opcode) + " changes nothing here");
  if (pair->what != kind::qp || number != pair->number) return wrong(bad_resource, 0x260, "pair " + std::to_string(number) + " is not the one that is to change");
  const uint32_t from = uint32_t(opcode) - 0x502;
  if (pair->state != from) return wrong(bad_state, 0x261, "pair " + std::to_string(number) + " is in state " + std::to_string(pair->state) + ", not " + std::to_string(from));
  verdict v = from == rst ? to_init(pair, r) : from == init ? to_rtr(pair, r) : to_rts(pair, r);
  if (v.status == 0 && r.left() >= 0) v = wrong(bad_param, 0x207, "opcode " + std::to_string(opcode) + ": bit " + std::to_string(r.left()) + " is set, and is none that this card takes");
  if (v.status) pair->state = from;
  publish(pair);
  return v;
}
