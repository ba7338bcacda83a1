//! torchrun (torch.distributed.run, "elastic") and everything else that speaks PyTorch's `env://` variables.
//!
//! MASTER_PORT is held by torch's own store, so the ranks meet at ports computed from it. A worker group that
//! is started again keeps its variables but for TORCHELASTIC_RESTART_COUNT, which each node counts by itself:
//! it can tell two generations apart only on a single node.

use rushmem_bootstrap_abi::Result;

use super::vars::Vars;
use super::{secret, Launch, Launcher, Ranks};
use crate::address::MeetingPoint;
use crate::names;

const NAMES: [&str; 4] = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
const LOCAL: [&str; 2] = ["LOCAL_RANK", "LOCAL_WORLD_SIZE"];
const RUN_ID: &str = "TORCHELASTIC_RUN_ID";
const RESTARTS: &str = "TORCHELASTIC_RESTART_COUNT";

pub(super) fn detect(vars: &Vars<'_>) -> Result<Option<Launch>> {
    // MASTER_ADDR and MASTER_PORT alone are often set for other launchers' sake.
    if !vars.any(&[RUN_ID, "RANK", "WORLD_SIZE"]) {
        return Ok(None);
    }
    let remedy =
        "start the program with torchrun --no-python, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
    let set = [NAMES[0], NAMES[1], NAMES[2], NAMES[3], RUN_ID];
    for name in NAMES {
        vars.need(name, &set, remedy)?;
    }
    let ranks = vars.ranks("RANK", "WORLD_SIZE", LOCAL, remedy)?;
    let port: Option<u16> = vars.number("MASTER_PORT", remedy)?;
    let host = vars.need("MASTER_ADDR", &set, remedy)?;
    let value = |name: &str| vars.get(name).unwrap_or_default();
    let one_node = ranks.local_ranks == Some(ranks.n_ranks);
    let identity = vec![
        "torchrun".into(),
        value("MASTER_PORT"),
        value(RUN_ID),
        ranks.n_ranks.to_string(),
        if one_node { value(RESTARTS) } else { String::new() },
    ];
    let shown = [NAMES[0], NAMES[1], LOCAL[0], NAMES[2], NAMES[3], RUN_ID, RESTARTS];
    let why = format!("torchrun: {}", vars.show(&shown));
    let one_host = one_host(&ranks, &host);
    let secret = secret::of(vars);
    let meeting = MeetingPoint { host, host_from: "MASTER_ADDR", identity, secret, taken: port, one_host };
    Ok(Some(Launch { launcher: Launcher::Torchrun { ranks, meeting }, why }))
}

/// Whether all ranks are on one host, and what says so: as many on this node as in all; or, from who sets the
/// four variables without the local ones, an address that other hosts cannot use.
fn one_host(ranks: &Ranks, host: &str) -> Option<String> {
    match ranks.local_ranks {
        Some(local) => (local == ranks.n_ranks).then(|| format!("LOCAL_WORLD_SIZE=WORLD_SIZE={local}")),
        None => names::is_loopback(host).then(|| format!("MASTER_ADDR={host}")),
    }
}
