//! Open MPI's launcher over several hosts: it runs on the first one, and what it takes for `ssh` enters the
//! others.

use std::process::Command;

use crate::namespaces::Hosts;
use crate::programs::{self, Running};
use crate::ranks::ROLE;

/// A launcher for `per_host` ranks on each of the first `n` hosts.
pub(crate) struct Mpirun<'a> {
    hosts: &'a Hosts,
    n: usize,
    per_host: u32,
    launcher: std::path::PathBuf,
    /// How ranks are dealt out to hosts, if not as mpirun does by itself.
    map_by: Option<&'static str>,
    /// Holds the script that enters a host.
    folder: tempfile::TempDir,
}

impl<'a> Mpirun<'a> {
    /// The launcher; says aloud what is missing for `test` otherwise.
    pub(crate) fn find(hosts: &'a Hosts, n: usize, per_host: u32, test: &str) -> Option<Mpirun<'a>> {
        let found =
            ["mpirun.openmpi", "mpirun"].into_iter().filter_map(programs::installed).find(|launcher| {
                let version = Command::new(launcher).arg("--version").output();
                version.is_ok_and(|v| String::from_utf8_lossy(&v.stdout).contains("Open MPI"))
            });
        let plugin = programs::built().join("librushmem_bootstrap_openmpi.so");
        match found {
            None => eprintln!("SKIP {test}: no Open MPI in PATH"),
            Some(_) if programs::installed("nsenter").is_none() => {
                eprintln!("SKIP {test}: no nsenter in PATH")
            }
            Some(_) if !plugin.exists() => {
                eprintln!("SKIP {test}: {} is not built (make mpi-plugins builds it)", plugin.display());
            }
            Some(launcher) => {
                let folder = tempfile::tempdir().expect("the temporary folder takes folders");
                return Some(Mpirun { hosts, n, per_host, launcher, map_by: None, folder });
            }
        }
        None
    }

    /// From now on ranks are dealt out to hosts so.
    pub(crate) fn map_by(&mut self, how: &'static str) -> &mut Self {
        self.map_by = Some(how);
        self
    }

    /// Starts this program to play `role` everywhere.
    #[track_caller]
    pub(crate) fn start(&mut self, role: &str, environment: &[(&str, &str)]) -> Running {
        let agent = self.folder.path().join("agent");
        let enter: String = (0..self.n)
            .map(|i| {
                format!(
                    "{}) exec {} -- sh -c \"$*\" ;;\n",
                    self.hosts.host(i).name,
                    self.hosts.host(i).nsenter()
                )
            })
            .collect();
        // Options come first, as ssh has them; then the host and the command, in words for its shell.
        let script = format!(
            "#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\nhost=$1\nshift\ncase $host in\n{enter}esac\n\
             echo \"no host $host\" >&2\nexit 1\n"
        );
        programs::script(&agent, &script);

        let mut command = programs::command(&self.launcher);
        let hosts: Vec<String> =
            (0..self.n).map(|i| format!("{}:{}", self.hosts.host(i).name, self.per_host)).collect();
        let mca = [
            ("plm_rsh_agent", agent.to_string_lossy().into_owned()),
            ("orte_tmpdir_base", self.folder.path().to_string_lossy().into_owned()),
            ("plm_rsh_no_tree_spawn", "1".into()),
            ("oob_tcp_if_include", "10.77.0.0/24".into()),
            ("btl_tcp_if_include", "10.77.0.0/24".into()),
            ("btl", "self,vader,tcp".into()),
            ("pml", "ob1".into()),
        ];
        let usual = ["--allow-run-as-root", "--oversubscribe", "--leave-session-attached"];
        command.args(usual).args(["-H", &hosts.join(",")]);
        command.args(self.map_by.iter().flat_map(|how| ["--map-by", how]));
        command.args(["-n", &(self.n as u32 * self.per_host).to_string()]);
        for (name, value) in mca {
            command.args(["--mca", name, &value]);
        }
        command.args(["-x", ROLE]).env(ROLE, role);
        for (name, value) in environment {
            command.args(["-x", name]).env(name, value);
        }
        for place in
            ["RUSHMEM_DEVICE", "RUSHMEM_CACHE_DIR", "RUSHMEM_UCX_LIB", "RUSHMEM_HOST_LIB", "LD_LIBRARY_PATH"]
        {
            if std::env::var_os(place).is_some() {
                command.args(["-x", place]);
            }
        }
        command.arg(std::env::current_exe().expect("a test knows where it is"));
        command.args(["--exact", "role", "--nocapture", "--test-threads=1"]);
        self.hosts.host(0).enter(&mut command);
        programs::start(&mut command)
    }
}
