//! What `rushmem_init` would do in this process, and what it would need, without joining anything: for
//! `rushmem-info` and for programs that want to say early what is missing.

use std::os::raw::c_char;
use std::path::PathBuf;

use rushmem_bootstrap_abi::BootError;
use rushmem_bootstrap_uid::environment::{detect_here, Launch, Launcher, Ranks};

use super::gpu::{check_size, forever, forever_path, tool};
use super::{guard, write_out};
use crate::boot::{self, Choice, Plan};
use crate::config::launches::{algorithm, LaunchStep, COLLECTIVES};
use crate::config::{Config, DeviceWish};
use crate::device::DeviceKind;
use crate::error::{err, Result};
use crate::gpu::Cuda;
use crate::plugin;
use crate::verbs;
use rushmem_abi::c::*;

/// What `rushmem_init` without an attribute would do here: which launcher it sees, how the PEs would meet,
/// which kind of device this PE would have. Succeeds also where a `RUSHMEM_*` setting makes no sense or the
/// device cannot be had: the struct says why. `RUSHMEM_ERR_ENVIRONMENT` where the launcher's variables make
/// no sense; the text names them. Local; joins nothing.
///
/// # Safety
/// `out` is null or points at a `rushmem_job_t` of `out->size` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_job_describe(out: *mut rushmem_job_t) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe { check_size(out.cast(), size_of::<rushmem_job_t>(), "rushmem_job_t")? };
        let (meeting, (device, device_why)) = match Config::from_env() {
            Ok(config) => {
                (MeetingPlan::plan(config.bootstrap.as_deref(), detect_here())?, device(config.device))
            }
            Err(e) => {
                let launcher = MeetingPlan::plan(None, detect_here())?;
                (MeetingPlan { bootstrap: "", why: e.message.clone(), ..launcher }, ("", e.message))
            }
        };
        let number = |number: Option<u32>| number.and_then(|n| i32::try_from(n).ok()).unwrap_or(-1);
        let ranks = meeting.ranks;
        let job = rushmem_job_t {
            size: size_of::<rushmem_job_t>() as u32,
            rank: number(ranks.map(|r| r.rank)),
            n_pes: number(ranks.map(|r| r.n_ranks)),
            local_rank: number(ranks.and_then(|r| r.local_rank)),
            local_pes: number(ranks.and_then(|r| r.local_ranks)),
            reserved: 0,
            launcher: forever(meeting.launcher),
            launcher_why: forever(&meeting.launcher_why),
            bootstrap: forever(meeting.bootstrap),
            bootstrap_why: forever(&meeting.why),
            device: forever(device),
            device_why: forever(&device_why),
        };
        // SAFETY: `out` is null or points at a struct of the size that was checked.
        unsafe { write_out(out, job, "out") }
    })
}

/// Row `index` of the table by which collectives on streams are launched, with what `RUSHMEM_COLLECTIVES`
/// says in place of its own: on GPUs, or on the CPU device. Rows are in the order of collectives and sizes;
/// behind the last one `collective` is empty. `RUSHMEM_ERR_ENVIRONMENT` where the setting makes no sense.
/// Local.
///
/// # Safety
/// `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_collective_launch(
    index: usize,
    gpu: i32,
    out: *mut rushmem_collective_launch_t,
) -> i32 {
    guard(|| {
        let launches = Config::from_env()?.launches;
        let rows =
            COLLECTIVES.iter().flat_map(|name| launches.steps(name, gpu != 0).iter().map(move |s| (name, s)));
        let row = rows.into_iter().nth(index);
        let (step, name) = row.map_or((LaunchStep::NONE, ""), |(name, step)| (*step, *name));
        let launch = rushmem_collective_launch_t {
            collective: forever(name),
            from_bytes: step.from,
            blocks: step.blocks,
            threads: step.threads,
            origin: forever(step.origin.text()),
            algorithm: forever(algorithm(name)),
        };
        // SAFETY: per contract.
        unsafe { write_out(out, launch, "out") }
    })
}

/// The C++ compiler that would compile kernels for the CPU device (`RUSHMEM_CXX` names it). Succeeds also
/// where there is none: the struct says why. Runs it for its version. Local.
///
/// # Safety
/// `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_cpu_compiler(out: *mut rushmem_tool_t) -> i32 {
    guard(|| {
        let cxx = std::env::var_os("RUSHMEM_CXX").filter(|v| !v.is_empty()).map(PathBuf::from);
        let found = rushmem_device_cpu::find_compiler(cxx.as_deref());
        // SAFETY: per contract.
        unsafe { write_out(out, tool(found.map_err(|e| err!(UNSUPPORTED, "{e}"))), "out") }
    })
}

/// The UCX that would reach PEs whose memory is not mapped, those on other hosts among them: its file and
/// version. Succeeds also where there is none, or too old a one: the struct says what was tried and how to
/// get it. Loads it. Local.
///
/// # Safety
/// `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_network(out: *mut rushmem_tool_t) -> i32 {
    guard(|| {
        let found = ucx_sys::Ucp::load().map(|ucx| (ucx.path(), ucx.version().to_string()));
        // SAFETY: per contract.
        unsafe { write_out(out, tool(found.map_err(|e| err!(ENVIRONMENT, "{e}"))), "out") }
    })
}

/// Network card number `index`, counted from 0, of those that this machine has and libibverbs lists, in
/// words: name, ports, addresses, and which GPUs are close. Lives for ever. `RUSHMEM_ERR_INVALID_ARGUMENT`
/// past the last one; where there is none, `rushmem_last_error_message` says why. Loads libibverbs. Local.
///
/// # Safety
/// `text` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_network_card(index: usize, text: *mut *const c_char) -> i32 {
    guard(|| {
        let folder = std::env::var_os("RUSHMEM_VERBS").map(std::path::PathBuf::from);
        let found = verbs::here(folder.as_deref()).map_err(|why| err!(INVALID_ARGUMENT, "{why}"))?;
        let card = found.get(index);
        let card =
            card.ok_or_else(|| err!(INVALID_ARGUMENT, "there are {} network cards here", found.len()))?;
        // SAFETY: per contract.
        unsafe { write_out(text, forever(&card.to_string()), "text") }
    })
}

/// The file of MPI plug-in number `index`, counted from 0, of those that lie around this library (or that
/// `RUSHMEM_MPI_PLUGIN` names): one for each MPI that it was built for. Lives for ever.
/// `RUSHMEM_ERR_INVALID_ARGUMENT` past the last one. Local; loads none.
///
/// # Safety
/// `path` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_mpi_plugin(index: usize, path: *mut *const c_char) -> i32 {
    guard(|| {
        let found = plugin::present();
        let file = found.get(index);
        let file =
            file.ok_or_else(|| err!(INVALID_ARGUMENT, "there are {} MPI plug-ins here", found.len()))?;
        // SAFETY: per contract.
        unsafe { write_out(path, forever_path(file), "path") }
    })
}

/// How the PEs would meet, in words.
#[derive(Debug)]
struct MeetingPlan {
    launcher: &'static str,
    launcher_why: String,
    bootstrap: &'static str,
    why: String,
    /// `None` where only the bootstrap itself can tell.
    ranks: Option<Ranks>,
}

impl MeetingPlan {
    fn plan(asked: Option<&str>, launch: std::result::Result<Launch, BootError>) -> Result<MeetingPlan> {
        const ALONE: Ranks = Ranks { rank: 0, n_ranks: 1, local_rank: Some(0), local_ranks: Some(1) };
        let Plan { launch, choice, why } = boot::plan(asked, launch)?;
        let launcher = match &launch.launcher {
            Launcher::RushmemRun { .. } => "rushmem-run",
            Launcher::Torchrun { .. } => "torchrun",
            Launcher::Slurm { .. } => "slurm",
            Launcher::OpenMpi { .. } => "openmpi",
            Launcher::Mpich { .. } => "mpich",
            Launcher::None => "none",
        };
        let is_mpi = matches!(launch.launcher, Launcher::OpenMpi { .. } | Launcher::Mpich { .. });
        let (bootstrap, ranks) = match choice {
            Choice::Single => ("single", Some(ALONE)),
            // MPI gives its own numbers, which are the launcher's where that is MPI's.
            Choice::Mpi(_) => ("mpi", launch.ranks().filter(|_| is_mpi)),
            Choice::Uid => ("uid", launch.ranks()),
        };
        Ok(MeetingPlan { launcher, launcher_why: launch.why, bootstrap, why, ranks })
    }
}

/// The kind of device, and why; no kind where the one that is wanted cannot be had.
fn device(wish: DeviceWish) -> (&'static str, String) {
    let kind = match DeviceKind::choose(wish) {
        Ok(kind) => kind,
        Err(e) => return ("", e.message),
    };
    let asked = match wish {
        DeviceWish::Auto => None,
        DeviceWish::Cpu => Some("RUSHMEM_DEVICE=cpu".to_owned()),
        DeviceWish::Cuda(None) => Some("RUSHMEM_DEVICE=cuda".to_owned()),
        DeviceWish::Cuda(Some(ordinal)) => {
            let asked = format!("RUSHMEM_DEVICE=cuda:{ordinal}");
            if let Err(e) = Cuda::look(ordinal) {
                return ("", format!("{asked}: {}", e.message));
            }
            Some(asked)
        }
    };
    match kind {
        DeviceKind::Cpu => ("cpu", asked.unwrap_or_else(|| "no GPU here".to_owned())),
        DeviceKind::Cuda => ("cuda", asked.unwrap_or_else(|| "there is a GPU".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_bootstrap_uid::environment::detect;

    fn plan(asked: Option<&str>, set: &[(&str, &str)]) -> Result<MeetingPlan> {
        let lookup = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        MeetingPlan::plan(asked, detect(&lookup))
    }

    #[test]
    fn what_is_asked_for_and_what_the_launcher_says() {
        let torch =
            [("RANK", "2"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];
        let ompi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let half = [("RUSHMEM_PE", "1")];
        // Asked for, environment, launcher, bootstrap, rank and number of PEs.
        type Case<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], &'a str, &'a str, Option<(u32, u32)>);
        let cases: [Case<'_>; 8] = [
            (None, &[], "none", "single", Some((0, 1))),
            (None, &torch, "torchrun", "uid", Some((2, 3))),
            (Some("uid"), &torch, "torchrun", "uid", Some((2, 3))),
            (Some("single"), &torch, "torchrun", "single", Some((0, 1))),
            (Some("mpi"), &torch, "torchrun", "mpi", None),
            (None, &ompi, "openmpi", "mpi", Some((1, 4))),
            (Some("mpi"), &ompi, "openmpi", "mpi", Some((1, 4))),
            (Some("single"), &half, "none", "single", Some((0, 1))),
        ];
        for (asked, set, launcher, bootstrap, ranks) in cases {
            let got = plan(asked, set).unwrap_or_else(|e| panic!("{asked:?} {set:?}: {e}"));
            assert_eq!((got.launcher, got.bootstrap), (launcher, bootstrap), "{asked:?} {set:?}");
            assert_eq!(got.ranks.map(|r| (r.rank, r.n_ranks)), ranks, "{asked:?} {set:?}");
            assert!(
                asked.is_none_or(|name| got.why.contains(&format!("RUSHMEM_BOOTSTRAP={name}"))),
                "{got:?}"
            );
        }
    }

    #[test]
    fn what_cannot_work_is_an_error_that_names_the_variable() {
        for (asked, set, word) in [
            (None, &[("RUSHMEM_PE", "1")][..], "RUSHMEM_NPES"),
            (Some("uid"), &[][..], "RUSHMEM_BOOTSTRAP"),
            (Some("uid"), &[("PMI_RANK", "0"), ("PMI_SIZE", "2")][..], "RUSHMEM_BOOTSTRAP"),
        ] {
            let e = plan(asked, set).expect_err(word);
            assert!(e.code == crate::error::code::ENVIRONMENT && e.message.contains(word), "{e}");
        }
    }
}
