//! Commands to the card's firmware ("Mellanox Adapters Programmer's Reference Manual"; Linux has their
//! layouts in its mlx5_ifc.h, with which a test compares these where a machine has it):
//! what a completion queue and a queue pair are made of, and how a pair gets from state to state.
//!
//! All numbers are big-endian; places are counted in bits, from the highest bit of the first byte.

use crate::config::PacketClass;

/// A field of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) at: usize,
    pub(super) bits: usize,
}

macro_rules! fields {
    ($($name:ident = $of:ident $($field:ident).+, $at:expr, $bits:expr;)*) => {
        $(const $name: Field = Field { at: $at, bits: $bits };)*

        /// All fields: the structure of mlx5_ifc.h, the name there, the place in it.
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str, Field)] =
            &[$((stringify!($of), stringify!($($field).+), $name),)*];
    };
}

fields! {
    OPCODE = create_qp_in opcode, 0, 16;
    MODIFY_NUMBER = rst2init_qp_in qpn, 0x48, 24;
    CQ_UMEM_OFFSET = create_cq_in cq_umem_offset, 0x280, 64;
    CQ_UMEM = create_cq_in cq_umem_id, 0x2c0, 32;
    CQ_UMEM_VALID = create_cq_in cq_umem_valid, 0x2e0, 1;
    CQ_RECORD_VALID = cqc dbr_umem_valid, 0x06, 1;
    CQ_COLLAPSED = cqc cc, 0x0b, 1;
    CQ_IGNORE_OVERRUN = cqc oi, 0x0e, 1;
    CQ_RECORD_UMEM = cqc dbr_umem_id, 0x20, 32;
    CQ_LOG_SIZE = cqc log_cq_size, 0x63, 5;
    CQ_UAR = cqc uar_page, 0x68, 24;
    CQ_EQ = cqc c_eqn, 0xb8, 8;
    CQ_RECORD = cqc dbr_addr, 0x1c0, 64;
    WQ_UMEM_OFFSET = create_qp_in wq_umem_offset, 0x800, 64;
    WQ_UMEM = create_qp_in wq_umem_id, 0x840, 32;
    WQ_UMEM_VALID = create_qp_in wq_umem_valid, 0x860, 1;
    QP_MIGRATION = qpc pm_state, 0x13, 2;
    QP_PD = qpc pd, 0x28, 24;
    QP_MTU = qpc mtu, 0x40, 3;
    QP_LOG_MESSAGE = qpc log_msg_max, 0x43, 5;
    QP_LOG_SLOTS = qpc log_sq_size, 0x51, 4;
    QP_UAR = qpc uar_page, 0x68, 24;
    QP_PEER = qpc remote_qpn, 0xa8, 24;
    QP_PATH_GLOBAL = qpc primary_address_path.grh, 0xe8, 1;
    QP_PATH_LID = qpc primary_address_path.rlid, 0xf0, 16;
    QP_PATH_TIMEOUT = qpc primary_address_path.ack_timeout, 0x100, 5;
    QP_PATH_SOURCE = qpc primary_address_path.src_addr_index, 0x108, 8;
    QP_PATH_HOPS = qpc primary_address_path.hop_limit, 0x118, 8;
    QP_PATH_CLASS = qpc primary_address_path.tclass, 0x124, 8;
    QP_PATH_GID = qpc primary_address_path.rgid_rip, 0x140, 128;
    QP_PATH_DSCP = qpc primary_address_path.dscp, 0x1ca, 6;
    QP_PATH_UDP = qpc primary_address_path.udp_sport, 0x1d0, 16;
    QP_PATH_PRIORITY = qpc primary_address_path.eth_prio, 0x1e1, 3;
    QP_PATH_LEVEL = qpc primary_address_path.sl, 0x1e4, 4;
    QP_PATH_PORT = qpc primary_address_path.vhca_port_num, 0x1e8, 8;
    QP_PATH_MAC_HIGH = qpc primary_address_path.rmac_47_32, 0x1f0, 16;
    QP_PATH_MAC_LOW = qpc primary_address_path.rmac_31_0, 0x200, 32;
    QP_LOG_READS_OUT = qpc log_sra_max, 0x388, 3;
    QP_RETRIES = qpc retry_count, 0x38d, 3;
    QP_RNR_RETRIES = qpc rnr_retry, 0x390, 3;
    QP_NEXT_SEND = qpc next_send_psn, 0x3c8, 24;
    QP_SEND_CQ = qpc cqn_snd, 0x3e8, 24;
    QP_LOG_READS_IN = qpc log_rra_max, 0x488, 3;
    QP_ATOMIC_MODE = qpc atomic_mode, 0x48c, 4;
    QP_READS = qpc rre, 0x490, 1;
    QP_WRITES = qpc rwe, 0x491, 1;
    QP_ATOMICS = qpc rae, 0x492, 1;
    QP_RNR_TIMER = qpc min_rnr_nak, 0x4a3, 5;
    QP_NEXT_RECEIVE = qpc next_rcv_psn, 0x4a8, 24;
    QP_RECEIVE_CQ = qpc cqn_rcv, 0x4e8, 24;
    QP_RECORD = qpc dbr_addr, 0x500, 64;
    QP_RECEIVES = qpc rq_type, 0x565, 3;
    QP_RECORD_VALID = qpc dbr_umem_valid, 0x683, 1;
    QP_RECORD_UMEM = qpc dbr_umem_id, 0x720, 32;
}

/// Where the contexts are in their commands, in bits.
const CQ_CONTEXT: usize = 0x80;
const QP_CONTEXT: usize = 0xc0;
/// Bytes of each command here, and of its answer.
const BYTES: usize = 0x880 / 8;
pub(super) const ANSWER: usize = 16;

/// Path migration: the pair stays where it is.
const MIGRATED: u64 = 3;
/// The pair receives nothing that would need a queue of its own.
const NO_RECEIVES: u64 = 3;
/// 2^30 bytes: the longest message there is.
const LOG_MESSAGE: u64 = 30;
/// As the InfiniBand specification has them: fetch-and-add, compare-and-swap, 8 bytes
/// (`MLX5_ATOMIC_MODE_IB_COMP`).
const INFINIBAND_ATOMICS: u64 = 1;
/// READs and atomics under way at a time, 2^4, which all cards have.
const LOG_READS: u64 = 4;
/// 4.096 us * 2^18: a second without an acknowledgement, seven times. A peer's death is reported
/// sooner by other ways; this is for a link that is gone.
const TIMEOUT: u64 = 18;
const RETRIES: u64 = 7;
/// 0.64 ms. Nothing here is ever not ready, as nothing is received.
const RNR_TIMER: u64 = 12;
/// The UDP source port of RoCE v2: of the range that its specification gives.
const UDP_SOURCE: u64 = 0xc000;

/// A command, as the firmware reads it.
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) bytes: [u8; BYTES],
}

impl Command {
    fn new(name: &'static str, opcode: u64) -> Command {
        let mut command = Command { name, bytes: [0; BYTES] };
        command.set(0, OPCODE, opcode);
        command
    }

    fn set(&mut self, base: usize, field: Field, value: u64) {
        debug_assert!(field.bits >= 64 || value >> field.bits == 0, "{value:#x} is too large for {field:?}");
        for i in 0..field.bits.min(64) {
            // From the lowest bit, which is the field's last.
            let at = base + field.at + field.bits - 1 - i;
            let bit = 0x80 >> (at % 8);
            if value >> i & 1 != 0 {
                self.bytes[at / 8] |= bit;
            } else {
                self.bytes[at / 8] &= !bit;
            }
        }
    }

    fn with(mut self, base: usize, fields: &[(Field, u64)]) -> Command {
        fields.iter().for_each(|(field, value)| self.set(base, *field, *value));
        self
    }
}

/// What an answer says: the status, the syndrome, the number of what was made.
pub(super) fn answer(bytes: &[u8; ANSWER]) -> (u8, u32, u32) {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (bytes[0], word(4), word(8) & 0xff_ffff)
}

/// Where the parts of a queue lie in the memory that the card knows, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueParts {
    pub(super) umem: u32,
    pub(super) slots: u64,
    pub(super) log_slots: u64,
    pub(super) completions: u64,
    /// The pair's doorbell record, and the completion queue's.
    pub(super) record: u64,
    pub(super) cq_record: u64,
    pub(super) uar: u32,
}

/// A completion queue of as many entries as there are slots, of which all but the first are never written:
/// each completion overwrites that. Nobody tells the card of having read it.
pub(super) fn create_cq(parts: &QueueParts, eq: u32) -> Command {
    let umem = u64::from(parts.umem);
    Command::new("CREATE_CQ", 0x400)
        .with(0, &[(CQ_UMEM_OFFSET, parts.completions), (CQ_UMEM, umem), (CQ_UMEM_VALID, 1)])
        .with(
            CQ_CONTEXT,
            &[
                (CQ_RECORD_VALID, 1),
                (CQ_RECORD_UMEM, umem),
                (CQ_RECORD, parts.cq_record),
                (CQ_COLLAPSED, 1),
                (CQ_IGNORE_OVERRUN, 1),
                (CQ_LOG_SIZE, parts.log_slots),
                (CQ_UAR, parts.uar.into()),
                (CQ_EQ, eq.into()),
            ],
        )
}

/// A reliable connection's pair, which sends only. Keys of its requests are checked against `pd`.
pub(super) fn create_qp(parts: &QueueParts, pd: u32, cq: u32) -> Command {
    let umem = u64::from(parts.umem);
    Command::new("CREATE_QP", 0x500)
        .with(0, &[(WQ_UMEM_OFFSET, parts.slots), (WQ_UMEM, umem), (WQ_UMEM_VALID, 1)])
        .with(
            QP_CONTEXT,
            &[
                (QP_MIGRATION, MIGRATED),
                (QP_PD, pd.into()),
                (QP_LOG_SLOTS, parts.log_slots),
                (QP_UAR, parts.uar.into()),
                (QP_SEND_CQ, cq.into()),
                (QP_RECEIVE_CQ, cq.into()),
                (QP_RECEIVES, NO_RECEIVES),
                (QP_RECORD_VALID, 1),
                (QP_RECORD_UMEM, umem),
                (QP_RECORD, parts.record),
            ],
        )
}

/// The pair takes the peer's READs and WRITEs; and its atomics of 8 bytes, where the card has them.
pub(super) fn init(number: u32, port: u8, atomics: bool) -> Command {
    let command = Command::new("RST2INIT_QP", 0x502).with(0, &[(MODIFY_NUMBER, number.into())]).with(
        QP_CONTEXT,
        &[(QP_MIGRATION, MIGRATED), (QP_PATH_PORT, port.into()), (QP_READS, 1), (QP_WRITES, 1)],
    );
    if atomics {
        return command.with(QP_CONTEXT, &[(QP_ATOMICS, 1), (QP_ATOMIC_MODE, INFINIBAND_ATOMICS)]);
    }
    command
}

/// The way to the peer's pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// InfiniBand, within a subnet.
    Lid(u16),
    /// RoCE.
    Ethernet { gid: [u8; 16], mac: [u8; 6], source: u8, v2: bool },
}

/// The pair receives. Classes go where Linux' driver puts them: a traffic class is in the header of RoCE's
/// packets, and for v2 in that of IP (`mlx5_set_path`).
pub(super) fn rtr(
    number: u32,
    port: u8,
    mtu: u8,
    (path, class): (&Path, PacketClass),
    peer: u32,
    psn: u32,
) -> Command {
    let command = Command::new("INIT2RTR_QP", 0x503).with(0, &[(MODIFY_NUMBER, number.into())]).with(
        QP_CONTEXT,
        &[
            (QP_MTU, mtu.into()),
            (QP_LOG_MESSAGE, LOG_MESSAGE),
            (QP_PEER, peer.into()),
            (QP_NEXT_RECEIVE, psn.into()),
            (QP_LOG_READS_IN, LOG_READS),
            (QP_RNR_TIMER, RNR_TIMER),
            (QP_PATH_PORT, port.into()),
        ],
    );
    match path {
        Path::Lid(lid) => {
            command.with(QP_CONTEXT, &[(QP_PATH_LID, (*lid).into()), (QP_PATH_LEVEL, class.level.into())])
        }
        Path::Ethernet { gid, mac, source, v2 } => {
            let high = u64::from(u16::from_be_bytes([mac[0], mac[1]]));
            let low = u64::from(u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]));
            let mut command = command.with(
                QP_CONTEXT,
                &[
                    (QP_PATH_GLOBAL, 1),
                    (QP_PATH_SOURCE, (*source).into()),
                    (QP_PATH_HOPS, 64),
                    (QP_PATH_UDP, if *v2 { UDP_SOURCE } else { 0 }),
                    (QP_PATH_CLASS, class.traffic.into()),
                    (QP_PATH_DSCP, if *v2 { (class.traffic >> 2).into() } else { 0 }),
                    (QP_PATH_PRIORITY, (class.level & 7).into()),
                    (QP_PATH_MAC_HIGH, high),
                    (QP_PATH_MAC_LOW, low),
                ],
            );
            let at = (QP_CONTEXT + QP_PATH_GID.at) / 8;
            command.bytes[at..at + QP_PATH_GID.bits / 8].copy_from_slice(gid);
            command
        }
    }
}

/// The pair sends.
pub(super) fn rts(number: u32, psn: u32) -> Command {
    Command::new("RTR2RTS_QP", 0x504).with(0, &[(MODIFY_NUMBER, number.into())]).with(
        QP_CONTEXT,
        &[
            (QP_NEXT_SEND, psn.into()),
            (QP_LOG_READS_OUT, LOG_READS),
            (QP_RETRIES, RETRIES),
            (QP_RNR_RETRIES, RETRIES),
            (QP_PATH_TIMEOUT, TIMEOUT),
        ],
    )
}

/// What a status says, and what to do next.
pub(super) fn status_text(status: u8) -> &'static str {
    match status {
        0x01 => "the firmware failed; its log has more (mstdump, dmesg)",
        0x02 => "this firmware has no such command; a newer one may (mstflint -d DEVICE query)",
        0x03 => "a parameter is wrong; report it with this line",
        0x04 => "the device is in no state for it; dmesg may say why",
        0x05 => "it names an object that is none, or not of this process; report it with this line",
        0x06 => "an object is in use",
        0x08 => "a limit of the device is exceeded; fewer PEs, RUSHMEM_QUEUE_CONTEXTS or RUSHMEM_QUEUE_SLOTS may be within it",
        0x09 => "an object is in another state",
        0x0a => "an index is out of range; report it with this line",
        0x0f => "the device has no more of it; fewer PEs for each device, or others are using it up",
        0x10 => "the pair is in another state",
        0x30 => "a packet was wrong",
        0x40 => "a size is wrong; another RUSHMEM_QUEUE_SLOTS may fit",
        0x50 => "the command is too short; report it with this line",
        0x51 => "its answer is too short; report it with this line",
        _ => "a status that is not known here; report it with this line",
    }
}
