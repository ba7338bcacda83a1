//! What can be known by looking, without joining a job: the runtime, the machine, CUDA, the launcher. Each
//! fact that could not be had holds the text of why, and of what to do.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rushmem::doctor::{self, Tool};
use rushmem::Gpu;
use serde::Serialize;

use crate::machine::{nvidia_module, Machine};

/// Everything.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) rushmem: Library,
    pub(crate) host: Machine,
    /// The RUSHMEM_* variables that are set; of those that are secret, only that they are.
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) cuda: Cuda,
    pub(crate) gpus: Vec<GpuFacts>,
    /// Row `i`, column `j`: whether GPU `i` reaches the memory of GPU `j`; null where the driver would not
    /// say.
    pub(crate) peer_access: Vec<Vec<Option<bool>>>,
    pub(crate) launch: Option<Launch>,
    /// Why the environment makes no sense.
    pub(crate) launch_error: Option<String>,
    /// The C++ compiler for the CPU device.
    pub(crate) compiler: ToolFacts,
    /// UCX, which reaches PEs whose memory is not mapped.
    pub(crate) ucx: ToolFacts,
    /// Network cards with verbs, in words, and why there are none.
    pub(crate) network_cards: Vec<String>,
    pub(crate) network_cards_error: Option<String>,
    pub(crate) mpi_plugins: Vec<PathBuf>,
}

/// The runtime that this process has loaded.
#[derive(Debug, Serialize)]
pub(crate) struct Library {
    /// Its release; this program's own where none could be loaded.
    pub(crate) version: String,
    /// Version of the C ABI.
    pub(crate) abi: u32,
    pub(crate) path: Option<PathBuf>,
    pub(crate) error: Option<String>,
}

/// The parts of CUDA.
#[derive(Debug, Serialize)]
pub(crate) struct Cuda {
    /// The CUDA version that the driver supports; none without a driver.
    pub(crate) driver: Option<String>,
    /// The release of NVIDIA's kernel module.
    pub(crate) module: Option<String>,
    /// Why the driver, or a GPU, cannot be used.
    pub(crate) error: Option<String>,
    pub(crate) nvrtc: ToolFacts,
    pub(crate) nvjitlink: ToolFacts,
    /// CUDA version of the device library in the runtime.
    pub(crate) device_library: Option<String>,
}

/// A program or library.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ToolFacts {
    pub(crate) version: Option<String>,
    pub(crate) path: Option<PathBuf>,
    pub(crate) error: Option<String>,
}

/// A GPU.
#[derive(Debug, Serialize)]
pub(crate) struct GpuFacts {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// As nvidia-smi writes it.
    pub(crate) uuid: String,
    pub(crate) pci_bus_id: String,
    /// `9.0`.
    pub(crate) capability: String,
    pub(crate) sms: u32,
    pub(crate) memory: u64,
    pub(crate) vmm: bool,
    pub(crate) posix_fd: bool,
    pub(crate) cooperative: bool,
    pub(crate) clusters: bool,
    pub(crate) stream_words: bool,
    pub(crate) rdma: bool,
}

/// What starting a world here would do.
#[derive(Debug, Serialize)]
pub(crate) struct Launch {
    pub(crate) launcher: String,
    pub(crate) launcher_why: String,
    pub(crate) rank: Option<u32>,
    pub(crate) n_pes: Option<u32>,
    pub(crate) local_rank: Option<u32>,
    pub(crate) local_pes: Option<u32>,
    /// None where a setting makes no sense.
    pub(crate) bootstrap: Option<String>,
    pub(crate) bootstrap_why: String,
    /// `cpu` or `cuda`; none where the one that is wanted cannot be had.
    pub(crate) device: Option<String>,
    pub(crate) device_why: String,
}

impl Facts {
    /// Looks at everything.
    pub(crate) fn look() -> Facts {
        let library = match rushmem::runtime() {
            Ok((version, path)) => {
                Library { version, abi: doctor::ABI_VERSION, path: Some(path), error: None }
            }
            Err(e) => Library {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                abi: doctor::ABI_VERSION,
                path: None,
                error: Some(e.message().to_owned()),
            },
        };
        // Without the runtime nothing else can be asked, and each answer would repeat that.
        let works = library.error.is_none();
        let (gpus, refused) = gpus(works);
        let (launch, launch_error) = match works.then(doctor::job).transpose() {
            Ok(plan) => (plan.map(Launch::from), None),
            Err(e) => (None, Some(e.message().to_owned())),
        };
        let cards = works
            .then(doctor::network_cards)
            .map(|cards| cards.unwrap_or_else(|e| Err(e.message().to_owned())));
        let (network_cards, network_cards_error) = match cards {
            Some(Ok(cards)) => (cards, None),
            Some(Err(why)) => (Vec::new(), Some(why)),
            None => (Vec::new(), None),
        };
        Facts {
            network_cards,
            network_cards_error,
            rushmem: library,
            host: Machine::here(),
            settings: settings(std::env::vars_os().map(|(name, value)| {
                (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
            })),
            cuda: Cuda::look(works, refused),
            peer_access: gpus.iter().map(|from| row(from, &gpus)).collect(),
            gpus: gpus.into_iter().map(GpuFacts::from).collect(),
            launch,
            launch_error,
            compiler: found(works.then(doctor::cpu_compiler)),
            ucx: found(works.then(doctor::network)),
            mpi_plugins: works.then(doctor::mpi_plugins).and_then(Result::ok).unwrap_or_default(),
        }
    }
}

fn settings(all: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let secret = |name: &String| matches!(name.as_str(), "RUSHMEM_UID" | "RUSHMEM_JOB_SECRET");
    let ours = all.filter(|(name, _)| name.starts_with("RUSHMEM_"));
    ours.map(|(name, value)| if secret(&name) { (name, "(set)".to_owned()) } else { (name, value) }).collect()
}

fn found(looked: Option<rushmem::Result<Result<Tool, String>>>) -> ToolFacts {
    match looked {
        Some(Ok(found)) => found.into(),
        Some(Err(e)) => ToolFacts { error: Some(e.message().to_owned()), ..ToolFacts::default() },
        None => ToolFacts::default(),
    }
}

fn gpus(works: bool) -> (Vec<Gpu>, Option<String>) {
    match works.then(rushmem::gpus) {
        Some(Ok(gpus)) => (gpus, None),
        Some(Err(e)) => (Vec::new(), Some(e.message().to_owned())),
        None => (Vec::new(), None),
    }
}

fn row(from: &Gpu, gpus: &[Gpu]) -> Vec<Option<bool>> {
    gpus.iter().map(|to| from.can_access(to).ok()).collect()
}

impl Cuda {
    fn look(works: bool, refused: Option<String>) -> Cuda {
        let module = nvidia_module();
        match works.then(doctor::cuda) {
            Some(Ok(found)) => {
                let (driver, error) = match found.driver {
                    Ok(version) => (version.map(|(major, minor)| format!("{major}.{minor}")), refused),
                    Err(e) => (None, Some(e)),
                };
                Cuda {
                    driver,
                    module,
                    error,
                    nvrtc: found.nvrtc.into(),
                    nvjitlink: found.nvjitlink.into(),
                    device_library: found.device_library,
                }
            }
            failed => Cuda {
                driver: None,
                module,
                error: failed.and_then(Result::err).map(|e| e.message().to_owned()),
                nvrtc: ToolFacts::default(),
                nvjitlink: ToolFacts::default(),
                device_library: None,
            },
        }
    }
}

impl From<Result<Tool, String>> for ToolFacts {
    fn from(found: Result<Tool, String>) -> ToolFacts {
        match found {
            Ok(tool) => ToolFacts { version: Some(tool.version), path: Some(tool.path), error: None },
            Err(e) => ToolFacts { error: Some(e), ..ToolFacts::default() },
        }
    }
}

impl From<Gpu> for GpuFacts {
    fn from(gpu: Gpu) -> GpuFacts {
        GpuFacts {
            index: gpu.index,
            name: gpu.name,
            uuid: uuid(&gpu.uuid),
            pci_bus_id: gpu.pci_bus_id,
            capability: format!("{}.{}", gpu.capability.0, gpu.capability.1),
            sms: gpu.sms,
            memory: gpu.memory,
            vmm: gpu.vmm,
            posix_fd: gpu.posix_fd,
            cooperative: gpu.cooperative,
            clusters: gpu.clusters,
            stream_words: gpu.stream_words,
            rdma: gpu.rdma,
        }
    }
}

impl From<doctor::JobPlan> for Launch {
    fn from(plan: doctor::JobPlan) -> Launch {
        let split = |chosen| match chosen {
            Ok((what, why)) => (Some(what), why),
            Err(why) => (None, why),
        };
        let ((bootstrap, bootstrap_why), (device, device_why)) = (split(plan.bootstrap), split(plan.device));
        Launch {
            launcher: plan.launcher,
            launcher_why: plan.launcher_why,
            rank: plan.rank,
            n_pes: plan.n_pes,
            local_rank: plan.local_rank,
            local_pes: plan.local_pes,
            bootstrap,
            bootstrap_why,
            device,
            device_why,
        }
    }
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvidia_smi_does() {
        let bytes = std::array::from_fn(|i| (i * 17) as u8);
        assert_eq!(uuid(&bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn secrets_are_not_shown() {
        let set = [
            ("RUSHMEM_UID", "c0ffee"),
            ("HOME", "/h"),
            ("RUSHMEM_DEVICE", "cpu"),
            ("RUSHMEM_JOB_SECRET", "s"),
        ];
        let shown = settings(set.iter().map(|(name, value)| (name.to_string(), value.to_string())));
        let shown: Vec<_> = shown.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, ["RUSHMEM_DEVICE=cpu", "RUSHMEM_JOB_SECRET=(set)", "RUSHMEM_UID=(set)"]);
    }
}
