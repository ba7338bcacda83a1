//! The report for a person: one section after the other, each a name and what is known, nothing wider than it
//! must be.

use crate::facts::{Facts, GpuFacts, ToolFacts};
use crate::job::Job;
use crate::Report;

/// All of it.
pub(crate) fn render(report: &Report) -> String {
    let mut out = Out(String::new());
    let facts = &report.facts;
    out.rushmem(facts);
    out.cuda(facts);
    out.gpus(facts);
    out.launch(facts);
    if let Some(job) = &report.job {
        out.job(job);
    }
    out.section("missing", if report.ok { "nothing that is needed" } else { "" });
    for text in &report.missing {
        out.line(&format!("  - {}", text.replace('\n', "\n    ")));
    }
    out.0
}

struct Out(String);

impl Out {
    fn line(&mut self, text: &str) {
        self.0.push_str(text.trim_end());
        self.0.push('\n');
    }

    fn section(&mut self, name: &str, text: &str) {
        self.line(&format!("{name:<11} {text}"));
    }

    fn rushmem(&mut self, facts: &Facts) {
        let library = &facts.rushmem;
        let path =
            library.path.as_ref().map_or_else(|| "not loaded".to_owned(), |path| path.display().to_string());
        self.section("rushmem", &format!("{}, ABI {}, {path}", library.version, library.abi));
        let host = &facts.host;
        let (cores, memory) = (host.cores, gib(host.memory));
        let of = if cores == 1 { "core" } else { "cores" };
        self.section(
            "host",
            &format!("{}: {}, {cores} {of}, {memory}, Linux {}", host.name, host.cpu, host.kernel),
        );
        if !facts.settings.is_empty() {
            let all: Vec<_> = facts.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
            self.section("settings", &all.join(" "));
        }
    }

    fn cuda(&mut self, facts: &Facts) {
        let cuda = &facts.cuda;
        let version = cuda.driver.as_ref().map(|version| format!("CUDA {version}"));
        let found: Vec<String> = [cuda.module.clone(), version].into_iter().flatten().collect();
        let found = if found.is_empty() { "none, or it finds no GPU".to_owned() } else { found.join(", ") };
        self.section("driver", &found);
        if let Some(error) = &cuda.error {
            self.line(&format!("  {error}"));
        }
        let gpus = device(facts) != Some("cpu");
        self.tool("NVRTC", &cuda.nvrtc, gpus, "GPUs");
        self.tool("nvJitLink", &cuda.nvjitlink, gpus, "GPUs");
        let library =
            cuda.device_library.as_ref().map(|version| format!("of CUDA {version}, in the runtime"));
        self.section("LTO library", library.as_deref().unwrap_or("none: the runtime was built without nvcc"));
    }

    /// What is missing but not needed takes few words; `--json` has them all.
    fn tool(&mut self, name: &str, tool: &ToolFacts, needed: bool, by: &str) {
        let text = match (&tool.path, &tool.error) {
            (Some(path), _) => {
                format!("{}, {}", tool.version.as_deref().unwrap_or("unknown"), path.display())
            }
            (None, Some(error)) if needed => error.clone(),
            (None, Some(_)) => format!("none here; needed for {by} only"),
            (None, None) => "unknown".to_owned(),
        };
        self.section(name, &text);
    }

    fn ucx(&mut self, ucx: &ToolFacts) {
        match &ucx.error {
            None => self.tool("UCX", ucx, false, ""),
            Some(error) => {
                self.section("UCX", "none here; needed for PEs on other hosts only");
                // Its last line says how to get it.
                self.line(&format!("            {}", error.lines().last().unwrap_or_default()));
            }
        }
    }

    fn gpus(&mut self, facts: &Facts) {
        if facts.gpus.is_empty() {
            return self.section("GPUs", "none");
        }
        self.section("GPUs", &facts.gpus.len().to_string());
        for gpu in &facts.gpus {
            let (name, bus, cc) = (&gpu.name, &gpu.pci_bus_id, &gpu.capability);
            self.line(&format!(
                "  {:>2}  {name}, {bus}, {cc}, {} SMs, {}",
                gpu.index,
                gpu.sms,
                gib(gpu.memory)
            ));
            self.line(&format!("      {}: {}", gpu.uuid, abilities(gpu)));
        }
        if facts.gpus.len() < 2 {
            return;
        }
        self.line("peer access (a row's GPU reaches the column's memory)");
        let columns: String = facts.gpus.iter().map(|gpu| format!("{:>5}", gpu.index)).collect();
        self.line(&format!("    {columns}"));
        for (gpu, row) in facts.gpus.iter().zip(&facts.peer_access) {
            let word = |(to, can): (usize, &Option<bool>)| match can {
                _ if to == gpu.index as usize => "-",
                Some(true) => "yes",
                Some(false) => "no",
                None => "?",
            };
            let cells: String = row.iter().enumerate().map(|cell| format!("{:>5}", word(cell))).collect();
            self.line(&format!("  {:>2}{cells}", gpu.index));
        }
    }

    fn launch(&mut self, facts: &Facts) {
        match &facts.launch {
            None => self.section("launcher", "unknown"),
            Some(launch) => {
                let (why, none) = (&launch.launcher_why, launch.launcher == "none");
                // The reason begins with the launcher's name, where there is one.
                self.section("launcher", &if none { format!("none: {why}") } else { why.clone() });
                let chosen = |what: &Option<String>, why: &str| match what {
                    Some(what) if !none && why == launch.launcher_why => {
                        format!("{what}, as the launcher says")
                    }
                    Some(what) => format!("{what}: {why}"),
                    None => format!("none: {why}"),
                };
                self.section("bootstrap", &chosen(&launch.bootstrap, &launch.bootstrap_why));
                self.section("device", &chosen(&launch.device, &launch.device_why));
            }
        }
        self.tool("compiler", &facts.compiler, device(facts) != Some("cuda"), "kernels on the CPU");
        self.ucx(&facts.ucx);
        match (facts.network_cards.split_first(), &facts.network_cards_error) {
            (Some((first, others)), _) => {
                self.section("cards", first);
                others.iter().for_each(|card| self.section("", card));
            }
            (None, Some(why)) => self.section("cards", &format!("none with verbs: {why}")),
            (None, None) => {}
        }
        let files: Vec<_> = facts.mpi_plugins.iter().map(|path| path.display().to_string()).collect();
        let none = "none here; needed under MPI's launchers only (`make mpi-plugins` builds them)";
        self.section("MPI", if files.is_empty() { none } else { files.first().map_or("", String::as_str) });
        for file in files.iter().skip(1) {
            self.section("", file);
        }
    }

    fn job(&mut self, job: &Job) {
        self.section("job", &format!("{} PE{}", job.n_pes, if job.n_pes == 1 { "" } else { "s" }));
        for pe in &job.pes {
            self.0.push_str(&pe.text());
        }
    }
}

fn device(facts: &Facts) -> Option<&str> {
    facts.launch.as_ref()?.device.as_deref()
}

fn abilities(gpu: &GpuFacts) -> String {
    let all = [
        (gpu.vmm, "virtual memory management"),
        (gpu.posix_fd, "POSIX descriptors"),
        (gpu.cooperative, "cooperative launches"),
        (gpu.clusters, "clusters"),
        (gpu.stream_words, "64-bit stream words"),
        (gpu.rdma, "GPUDirect RDMA"),
    ];
    let list =
        |has: bool| all.iter().filter(|(can, _)| *can == has).map(|(_, word)| *word).collect::<Vec<_>>();
    match list(false) {
        lacking if lacking.is_empty() => list(true).join(", "),
        lacking => format!("{}; no {}", list(true).join(", "), lacking.join(", no ")),
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
