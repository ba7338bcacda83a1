//! Where UCX listens: on no more interfaces than the job needs.
//!
//! By itself UCX opens a port on every interface of the host, and parses what comes in there before rushmem
//! sees it. PEs of one host need only the loopback interface, beside shared memory. PEs of several hosts need
//! the interface on which their job has met, and all InfiniBand and RoCE devices. `UCX_NET_DEVICES` overrides
//! this.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use ucx_sys::{ucp_config_t, Ucp, UCS_OK};

/// Where the other PEs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    /// All on this host, in one network namespace.
    Loopback,
    /// Where these interfaces lead.
    Interfaces(Vec<String>),
    /// Nobody knows: UCX chooses.
    Anywhere,
}

/// The network's devices, as the system lists them.
const INTERFACES: &str = "/sys/class/net";
const RDMA: &str = "/sys/class/infiniband";

impl Listen {
    /// Makes UCX do so, before its context is made. What could not be said is logged: it then listens
    /// everywhere.
    ///
    /// # Safety
    /// The configuration is one that `ucp_config_read` made.
    pub(super) unsafe fn agree(&self, ucp: &Ucp, config: *mut ucp_config_t) {
        if std::env::var_os("UCX_NET_DEVICES").is_some() {
            return;
        }
        let Some(devices) = self.devices(Path::new(INTERFACES), Path::new(RDMA)) else { return };
        let Ok(value) = CString::new(devices.join(",")) else { return };
        // SAFETY: the caller's configuration; the texts are read before the call returns.
        let status = unsafe { ucp.ucp_config_modify(config, c"NET_DEVICES".as_ptr(), value.as_ptr()) };
        if status != UCS_OK {
            log::warn!("UCX listens on every interface: {}", ucp.status_text(status));
            return;
        }
        if devices.len() > 1 {
            // A UCX without a module for one of them would warn of it, though the system has it.
            // SAFETY: the caller's configuration; the texts are read before the call returns.
            unsafe { ucp.ucp_config_modify(config, c"WARN_INVALID_CONFIG".as_ptr(), c"n".as_ptr()) };
        }
        log::debug!("UCX uses {} (UCX_NET_DEVICES decides otherwise)", devices.join(","));
    }

    /// The value of `UCX_NET_DEVICES`; `None`: all that there is.
    fn devices(&self, interfaces: &Path, rdma: &Path) -> Option<Vec<String>> {
        let mut devices = match self {
            Listen::Loopback => vec!["lo".to_owned()],
            // An alias is no device of its own.
            Listen::Interfaces(names) => {
                names.iter().map(|name| name.split(':').next().unwrap_or(name).to_owned()).collect()
            }
            Listen::Anywhere => return None,
        };
        devices.retain(|device| is_up(&interfaces.join(device)));
        devices.dedup();
        if devices.is_empty() {
            return None;
        }
        if *self != Listen::Loopback {
            devices.extend(ports(rdma));
        }
        Some(devices)
    }
}

/// Whether the interface of that folder may be used (`IFF_UP`).
fn is_up(folder: &Path) -> bool {
    let flags = fs::read_to_string(folder.join("flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    flags & libc::IFF_UP as u32 != 0
}

/// Active ports of InfiniBand and RoCE devices, as UCX calls them: `mlx5_0:1`.
fn ports(rdma: &Path) -> Vec<String> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let mut ports = Vec::new();
    for device in names(rdma) {
        let folder = rdma.join(&device).join("ports");
        for port in names(&folder) {
            let state = fs::read_to_string(folder.join(&port).join("state")).unwrap_or_default();
            if state.contains("ACTIVE") {
                ports.push(format!("{device}:{port}"));
            }
        }
    }
    ports.sort();
    ports
}

/// Whether this host has devices that copy by themselves.
pub(super) fn has_rdma() -> bool {
    fs::read_dir(RDMA).is_ok_and(|mut devices| devices.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_devices_than_are_needed() {
        let root = tempfile::tempdir().unwrap();
        let (net, rdma) = (root.path().join("net"), root.path().join("infiniband"));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (name, flags) in [("lo", "0x9\n"), ("eth0", "0x1003\n"), ("eth1", "0x1002\n")] {
            write(&net.join(name).join("flags"), flags);
        }
        let at = |names: &str| {
            Listen::Interfaces(names.split(',').map(str::to_owned).collect()).devices(&net, &rdma)
        };
        assert_eq!(Listen::Loopback.devices(&net, &rdma).unwrap(), ["lo"]);
        assert_eq!(at("eth0").unwrap(), ["eth0"]);
        assert_eq!(at("eth0,eth0:7").unwrap(), ["eth0"]);
        assert_eq!(at("eth1,eth0,lo").unwrap(), ["eth0", "lo"]);
        assert_eq!(at("eth1"), None, "it is down");
        assert_eq!(at("eth2"), None, "it is not there");
        assert_eq!(Listen::Anywhere.devices(&net, &rdma), None);

        for (port, state) in [("mlx5_1/ports/1", "4: ACTIVE"), ("mlx5_0/ports/2", "1: DOWN")] {
            write(&rdma.join(port).join("state"), state);
        }
        write(&rdma.join("mlx5_0/ports/1/state"), "4: ACTIVE\n");
        assert_eq!(at("eth0").unwrap(), ["eth0", "mlx5_0:1", "mlx5_1:1"]);
        assert_eq!(Listen::Loopback.devices(&net, &rdma).unwrap(), ["lo"]);
    }
}
