//! What a program would miss here. What is not there but not needed (a GPU where the CPU is asked for, MPI
//! under another launcher) is no fault of the machine.

use crate::facts::{Facts, GpuFacts};

/// What is missing for this PE, each with what to do about it.
pub(crate) fn here(facts: &Facts) -> Vec<String> {
    if let Some(error) = &facts.rushmem.error {
        return vec![error.clone()];
    }
    let Some(launch) = &facts.launch else {
        return facts.launch_error.iter().cloned().collect();
    };
    if launch.bootstrap.is_none() {
        return vec![launch.bootstrap_why.clone()];
    }
    let mut missing = Vec::new();
    match launch.device.as_deref() {
        None => missing.push(launch.device_why.clone()),
        Some("cuda") => {
            if !facts.gpus.iter().any(holds_heap) {
                missing.push(
                    "no GPU here can hold a symmetric heap: that takes virtual memory management with POSIX descriptors \
                     (RUSHMEM_DEVICE=cpu does without)"
                        .to_owned(),
                );
            }
            // nvJitLink is not needed: without it kernels are compiled whole.
            missing.extend(facts.cuda.nvrtc.error.clone());
        }
        Some(_) => missing.extend(facts.compiler.error.clone()),
    }
    missing
}

/// What joining would say, where nobody joins.
pub(crate) fn to_join(facts: &Facts) -> Option<String> {
    let launch = facts.launch.as_ref()?;
    (launch.bootstrap.as_deref() == Some("mpi") && facts.mpi_plugins.is_empty()).then(|| {
        format!(
            "the PEs are to meet over MPI ({}), but there is no MPI plug-in: `make install PREFIX=...` in rushmem's sources \
             installs one for the mpicc on PATH, `make mpi-plugins` builds it in place, RUSHMEM_MPI_PLUGIN names one",
            launch.bootstrap_why
        )
    })
}

fn holds_heap(gpu: &GpuFacts) -> bool {
    gpu.vmm && gpu.posix_fd
}
