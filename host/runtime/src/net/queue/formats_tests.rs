//! The formats of kernels, of the host and of the software card, compared with rdma-core's `mlx5dv.h`: the
//! first two number by number, by a C++ compiler; the card's by requests that a program builds with
//! mlx5dv.h's structures and functions, and that the card's parser has to read.

use std::path::Path;
use std::process::Command;

use super::emulated::parsed;
use super::formats::{self, Completion};

const HEADER: &str = "/usr/include/infiniband/mlx5dv.h";

/// Compiles a program, and gives what it prints; `None`, aloud, where there is no mlx5dv.h.
fn program(test: &str, body: &str) -> Option<String> {
    if !Path::new(HEADER).exists() {
        eprintln!("SKIP {test}: no {HEADER} (apt-get install libibverbs-dev)");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, binary) = (dir.path().join("formats.cpp"), dir.path().join("formats"));
    let text = format!(
        "#include <cstddef>\n#include <cstdint>\n#include <cstdio>\n#include <cstring>\n\
         #include <infiniband/mlx5dv.h>\n#include <rushmem/impl/net/mlx5.h>\n{body}"
    );
    std::fs::write(&source, text).unwrap();
    let mut cxx = Command::new("c++");
    cxx.args(["-std=c++17", "-Wall", "-I", rushmem_device::INCLUDE, "-o"]).arg(&binary).arg(&source);
    let built = cxx.output().expect("the tests need a C++ compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&binary).output().unwrap();
    assert!(ran.status.success());
    Some(String::from_utf8(ran.stdout).unwrap())
}

#[test]
fn numbers_are_those_of_mlx5dv() {
    let same = [
        ("RUSHMEM_MLX5_NOP", "MLX5_OPCODE_NOP", Some(u64::from(formats::NOP))),
        ("RUSHMEM_MLX5_WRITE", "MLX5_OPCODE_RDMA_WRITE", None),
        ("RUSHMEM_MLX5_READ", "MLX5_OPCODE_RDMA_READ", Some(u64::from(formats::READ))),
        ("RUSHMEM_MLX5_COMPARE_SWAP", "MLX5_OPCODE_ATOMIC_CS", None),
        ("RUSHMEM_MLX5_FETCH_ADD", "MLX5_OPCODE_ATOMIC_FA", None),
        ("RUSHMEM_MLX5_COMPLETE", "MLX5_WQE_CTRL_CQ_UPDATE", Some(u64::from(formats::COMPLETE))),
        ("RUSHMEM_MLX5_FENCE", "MLX5_WQE_CTRL_FENCE", None),
        ("RUSHMEM_MLX5_BLOCK", "MLX5_SEND_WQE_BB", Some(formats::BLOCK as u64)),
        ("RUSHMEM_MLX5_FLAGS_AT", "offsetof(mlx5_wqe_ctrl_seg, fm_ce_se)", None),
        ("RUSHMEM_MLX5_ADDRESS_AT", "sizeof(mlx5_wqe_ctrl_seg)", None),
        ("RUSHMEM_MLX5_DATA_AT", "sizeof(mlx5_wqe_ctrl_seg) + sizeof(mlx5_wqe_raddr_seg)", None),
        (
            "RUSHMEM_MLX5_ANSWER_AT",
            "sizeof(mlx5_wqe_ctrl_seg) + sizeof(mlx5_wqe_raddr_seg) + sizeof(mlx5_wqe_atomic_seg)",
            None,
        ),
        ("RUSHMEM_MLX5_RECORD_SEND", "MLX5_SND_DBR", Some(formats::RECORD_SEND as u64)),
        ("RUSHMEM_MLX5_SYNDROME_AT", "offsetof(mlx5_err_cqe, syndrome)", Some(formats::SYNDROME_AT as u64)),
        ("RUSHMEM_MLX5_COUNTER_AT", "offsetof(mlx5_cqe64, wqe_counter)", Some(formats::COUNTER_AT as u64)),
        ("RUSHMEM_MLX5_COUNTER_AT", "offsetof(mlx5_err_cqe, wqe_counter)", None),
        ("RUSHMEM_MLX5_OWNER_AT", "offsetof(mlx5_cqe64, op_own)", Some(formats::OWNER_AT as u64)),
        ("RUSHMEM_MLX5_INLINE", "(unsigned)MLX5_INLINE_SEG", None),
        ("RUSHMEM_MLX5_DONE", "MLX5_CQE_REQ", Some(u64::from(formats::DONE))),
        ("RUSHMEM_MLX5_FAILED", "MLX5_CQE_REQ_ERR", None),
        ("RUSHMEM_MLX5_NONE_YET", "MLX5_CQE_INVALID", Some(u64::from(formats::NONE_YET))),
        ("RUSHMEM_MLX5_FLUSHED", "MLX5_CQE_SYNDROME_WR_FLUSH_ERR", None),
        ("RUSHMEM_MLX5_NO_ANSWER", "MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR", None),
        ("RUSHMEM_MLX5_NOT_READY", "MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR", None),
    ];
    let mut body = String::new();
    for (ours, theirs, host) in same {
        body += &format!("static_assert((long long)({ours}) == (long long)({theirs}), \"{ours}\");\n");
        if let Some(host) = host {
            body += &format!("static_assert({host}ll == (long long)({theirs}), \"{ours} of the host\");\n");
        }
    }
    body += "static_assert(sizeof(mlx5_wqe_data_seg) == 16 && sizeof(mlx5_wqe_atomic_seg) == 16 && offsetof(mlx5_wqe_atomic_seg, swap_add) == 0 \
             && offsetof(mlx5_wqe_atomic_seg, compare) == 8 && sizeof(mlx5_cqe64) == 64 \
             && sizeof(mlx5_err_cqe) == 64 && sizeof(mlx5_wqe_inl_data_seg) == 4, \"segments\");\nint main() {}\n";
    program("numbers_are_those_of_mlx5dv", &body);
}

/// What the program prints: requests of every kind, a completion and a failure, as mlx5dv.h has them.
const PROGRAM: &str = r#"
static void show(const void *at) {
  for (int i = 0; i < 64; ++i) printf("%02x", static_cast<const unsigned char *>(at)[i]);
  printf("\n");
}
union block {
  unsigned char bytes[64];
  struct {
    mlx5_wqe_ctrl_seg ctrl;
    mlx5_wqe_raddr_seg remote;
    union {
      mlx5_wqe_data_seg data;
      struct { mlx5_wqe_inl_data_seg head; unsigned char bytes[28]; } carried;
      struct { mlx5_wqe_atomic_seg atomic; mlx5_wqe_data_seg answer; } update;
    };
  };
};
static block of(uint16_t index, uint8_t opcode, uint8_t flags, uint8_t segments) {
  block b;
  memset(&b, 0, sizeof b);
  mlx5dv_set_ctrl_seg(&b.ctrl, index, opcode, 0, 0xabcdef, flags, segments, 0, 0);
  b.remote.raddr = htobe64(0x1122334455667788ull);
  b.remote.rkey = htobe32(0xcafe0001u);
  return b;
}
int main() {
  block b = of(0xfffe, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_CQ_UPDATE, 3);
  mlx5dv_set_data_seg(&b.data, 77, 0xbeef0002u, 0x8877665544332211ull);
  show(&b);
  b = of(0xfffe, MLX5_OPCODE_RDMA_WRITE, MLX5_WQE_CTRL_FENCE, 4);
  b.carried.head.byte_count = htobe32(MLX5_INLINE_SEG | 15);
  memcpy(b.carried.bytes, "fifteen bytes..", 15);
  show(&b);
  b = of(0xfffe, MLX5_OPCODE_RDMA_READ, MLX5_WQE_CTRL_CQ_UPDATE, 3);
  mlx5dv_set_data_seg(&b.data, 77, 0xbeef0002u, 0x8877665544332211ull);
  show(&b);
  b = of(0xfffe, MLX5_OPCODE_ATOMIC_FA, MLX5_WQE_CTRL_CQ_UPDATE, 4);
  b.update.atomic.swap_add = htobe64(0x0102030405060708ull);
  mlx5dv_set_data_seg(&b.update.answer, 8, 0xbeef0002u, 0x8877665544332211ull);
  show(&b);
  b = of(0xfffe, MLX5_OPCODE_ATOMIC_CS, MLX5_WQE_CTRL_CQ_UPDATE, 4);
  b.update.atomic.swap_add = htobe64(0x0102030405060708ull);
  b.update.atomic.compare = htobe64(0x1112131415161718ull);
  mlx5dv_set_data_seg(&b.update.answer, 8, 0xbeef0002u, 0x8877665544332211ull);
  show(&b);
  b = of(0xfffe, MLX5_OPCODE_NOP, 0, 1);
  show(&b);
  mlx5_cqe64 done;
  memset(&done, 0, sizeof done);
  done.wqe_counter = htobe16(0x1234);
  done.op_own = MLX5_CQE_REQ << 4 | 1;
  show(&done);
  mlx5_err_cqe failed;
  memset(&failed, 0, sizeof failed);
  failed.wqe_counter = htobe16(0x1235);
  failed.syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
  failed.op_own = MLX5_CQE_REQ_ERR << 4;
  show(&failed);
  return 0;
}
"#;

#[test]
fn the_card_reads_what_mlx5dv_writes() {
    // `mlx5dv_set_ctrl_seg` takes bytes for ds; the remote segment is zero in a NOP.
    let program = PROGRAM.replace(
        "b = of(0xfffe, MLX5_OPCODE_NOP, 0, 1);",
        "b = of(0xfffe, MLX5_OPCODE_NOP, 0, 1);\n  memset(&b.remote, 0, 16);",
    );
    let Some(said) = self::program("the_card_reads_what_mlx5dv_writes", &program) else { return };
    let blocks: Vec<[u8; 64]> = said
        .lines()
        .map(|line| std::array::from_fn(|i| u8::from_str_radix(&line[2 * i..2 * i + 2], 16).unwrap()))
        .collect();
    let local = "LocalBytes { key: 3203334146, address: 9833440827789222417, bytes: 77 }";
    let answer = "LocalBytes { key: 3203334146, address: 9833440827789222417, bytes: 8 }";
    let head = |completes: bool, fenced: bool| {
        format!("completes: {completes}, fenced: {fenced}, remote: 1234605616436508552, key: 3405643777")
    };
    let expected = [
        format!("WorkRequest {{ {}, body: Write({local}) }}", head(true, false)),
        format!("WorkRequest {{ {}, body: WriteInline({:?}) }}", head(false, true), b"fifteen bytes.."),
        format!("WorkRequest {{ {}, body: Read({local}) }}", head(true, false)),
        format!(
            "WorkRequest {{ {}, body: FetchAdd {{ add: 72623859790382856, answer: {answer} }} }}",
            head(true, false)
        ),
        format!(
            "WorkRequest {{ {}, body: CompareSwap {{ swap: 72623859790382856, compare: 1230066625199609624, answer: {answer} }} }}",
            head(true, false)
        ),
        "WorkRequest { completes: false, fenced: false, remote: 0, key: 0, body: Nothing }".to_owned(),
    ];
    for (block, expected) in blocks.iter().zip(&expected) {
        assert_eq!(&format!("{:?}", parsed(block, 0xfffe, 0xab_cdef)), expected);
    }
    let words = |block: &[u8; 64]| {
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        Completion::read(word(48), word(56))
    };
    assert_eq!(words(&blocks[6]), Completion::Done(0x1234));
    assert_eq!(words(&blocks[7]), Completion::Failed(0x1235, 0x13));
    // What the host writes is as that program would have it.
    let mut ours = [0u8; 64];
    let [first, second] = formats::nop(0xfffe, 0xab_cdef);
    ours[..8].copy_from_slice(&first.to_le_bytes());
    ours[8..16].copy_from_slice(&second.to_le_bytes());
    ours[11] = 0;
    assert_eq!(ours, blocks[5]);
    let read = formats::read_word(
        0xfffe,
        0xab_cdef,
        (0x1122_3344_5566_7788, 0xcafe_0001),
        (0x8877_6655_4433_2211, 0xbeef_0002),
    );
    let mut ours = [0u8; 64];
    ours.chunks_exact_mut(8).zip(read).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    let mut theirs = blocks[2];
    // That program reads more.
    theirs[32..36].copy_from_slice(&8u32.to_be_bytes());
    assert_eq!(ours, theirs);
    assert_eq!(formats::bell(0xfffe, 0xab_cdef).to_le_bytes(), [0, 0xff, 0xfe, 0, 0xab, 0xcd, 0xef, 0]);
}
