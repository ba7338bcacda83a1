//! Network cards with verbs, as `libibverbs` lists them and Linux describes them
//! (`Documentation/ABI/stable/sysfs-class-infiniband`): their ports, addresses, and which GPUs are close. And
//! what their completions say of requests that failed.
//!
//! The library is found at run time, as UCX is: nothing links against it.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;

/// Where Linux describes devices.
const SYS: &str = "/sys";
/// NVIDIA's number among PCI vendors.
const NVIDIA: &str = "0x10de";

/// A port of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Port {
    number: u32,
    state: String,
    link: String,
    rate: String,
    /// The first address that is one.
    gid: Option<String>,
}

/// A card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CardFacts {
    name: String,
    /// Its requests have the formats that kernels write.
    mlx5: bool,
    ports: Vec<Port>,
    /// GPUs, and how close each is.
    gpus: Vec<(String, &'static str)>,
}

impl std::fmt::Display for CardFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.name, if self.mlx5 { " (mlx5)" } else { "" })?;
        for port in &self.ports {
            let Port { number, state, link, rate, gid } = port;
            let gid = gid.as_deref().unwrap_or("none");
            write!(f, "; port {number}: {state}, {link}, {rate}, GID {gid}")?;
        }
        for (gpu, distance) in &self.gpus {
            write!(f, "; GPU {gpu}: {distance}")?;
        }
        Ok(())
    }
}

impl CardFacts {
    /// Whether kernels could write its queues.
    pub(crate) fn is_mlx5(&self) -> bool {
        self.mlx5
    }

    /// What Linux says of the card of that name.
    fn describe(sys: &Path, name: &str, mlx5: bool) -> CardFacts {
        let here = sys.join("class/infiniband").join(name);
        let mut ports: Vec<Port> = numbers(&here.join("ports"))
            .into_iter()
            .map(|number| {
                let port = here.join(format!("ports/{number}"));
                let said = |file: &str| text(&port.join(file)).unwrap_or_else(|| "unknown".to_owned());
                Port {
                    number,
                    // `4: ACTIVE`.
                    state: said("state").rsplit(": ").next().unwrap_or_default().to_lowercase(),
                    link: said("link_layer"),
                    rate: said("rate"),
                    gid: numbers(&port.join("gids")).into_iter().find_map(|i| {
                        let gid = text(&port.join(format!("gids/{i}")))?;
                        gid.chars().any(|c| !matches!(c, '0' | ':')).then_some(gid)
                    }),
                }
            })
            .collect();
        ports.sort_by_key(|port| port.number);
        let gpus = match pci_path(&here.join("device")) {
            None => Vec::new(),
            Some(card) => gpus(sys).into_iter().map(|(gpu, path)| (gpu, distance(&card, &path))).collect(),
        };
        CardFacts { name: name.to_owned(), mlx5, ports, gpus }
    }
}

fn text(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// The entries of a folder that are numbers.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    found
}

/// The bridges on the way to a PCI device, and itself: `pci0000:00`, `0000:00:01.0`, ...
fn pci_path(device: &Path) -> Option<Vec<String>> {
    let whole = fs::canonicalize(device).ok()?;
    let names = whole.iter().map(|part| part.to_string_lossy().into_owned());
    let path: Vec<String> = names.skip_while(|name| !name.starts_with("pci")).collect();
    (!path.is_empty()).then_some(path)
}

/// NVIDIA's GPUs, by PCI address.
fn gpus(sys: &Path) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<_> = fs::read_dir(sys.join("bus/pci/devices"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let is =
                |file, wanted: &str| text(&entry.path().join(file)).is_some_and(|s| s.starts_with(wanted));
            // Display controllers.
            is("vendor", NVIDIA) && is("class", "0x03")
        })
        .filter_map(|entry| {
            Some((entry.file_name().to_string_lossy().into_owned(), pci_path(&entry.path())?))
        })
        .collect();
    found.sort();
    found
}

/// In nvidia-smi's words (`nvidia-smi topo -m`), spelled out.
fn distance(card: &[String], gpu: &[String]) -> &'static str {
    let shared = card.iter().zip(gpu).take_while(|(a, b)| a == b).count();
    match shared {
        0 => "across PCI host bridges",
        1 => "behind the same PCI host bridge",
        _ => "behind the same PCI switch",
    }
}

// ---- libibverbs ----

type DeviceList = *mut *mut c_void;

/// One of rdma-core's libraries: of `folder`, or where the system finds it.
pub(crate) fn open(folder: Option<&Path>, name: &str) -> Result<Library, String> {
    let file = folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
    let next = if folder.is_some() {
        "RUSHMEM_VERBS names the folder"
    } else {
        "`apt-get install ibverbs-providers`"
    };
    // SAFETY: rdma-core's libraries, whose initialisers register drivers and nothing else.
    unsafe { Library::new(file) }.map_err(|e| format!("no {name} ({e}); {next}"))
}

/// The cards that the process could open, and whether each is an mlx5; why not, where it can open none.
fn listed(folder: Option<&Path>) -> Result<Vec<(String, bool)>, String> {
    let open = |name: &str| open(folder, name);
    let verbs = open("libibverbs.so.1")?;
    let missing = |e| format!("libibverbs.so.1 is not rdma-core's: {e}");
    // SAFETY: the signatures of rdma-core's verbs.h, unchanged since its first version.
    let (list, free, name) = unsafe {
        let list = verbs.get::<unsafe extern "C" fn(*mut c_int) -> DeviceList>(b"ibv_get_device_list\0");
        let free = verbs.get::<unsafe extern "C" fn(DeviceList)>(b"ibv_free_device_list\0");
        let name = verbs.get::<unsafe extern "C" fn(*mut c_void) -> *const c_char>(b"ibv_get_device_name\0");
        (list.map_err(missing)?, free.map_err(missing)?, name.map_err(missing)?)
    };
    let mlx5 = open("libmlx5.so.1").ok();
    // SAFETY: the signature of rdma-core's mlx5dv.h.
    let supported = mlx5.as_ref().and_then(|mlx5| unsafe {
        mlx5.get::<unsafe extern "C" fn(*mut c_void) -> bool>(b"mlx5dv_is_supported\0").ok()
    });
    let mut count = 0;
    // SAFETY: writes the count, and gives a list or null.
    let devices = unsafe { list(&mut count) };
    if devices.is_null() {
        let why = std::io::Error::last_os_error();
        return Err(format!("libibverbs.so.1 lists no card: {why} (is the module ib_uverbs loaded?)"));
    }
    let found = (0..count.max(0) as usize)
        .map(|i| {
            // SAFETY: an entry of the list, which has a name as long as the list lives.
            unsafe {
                let device = *devices.add(i);
                let text = CStr::from_ptr(name(device)).to_string_lossy().into_owned();
                (text, supported.as_ref().is_some_and(|supported| supported(device)))
            }
        })
        .collect();
    // SAFETY: the list that was given.
    unsafe { free(devices) };
    // rdma-core's drivers stay registered with the library: it is not unloaded.
    std::mem::forget((verbs, mlx5));
    Ok(found)
}

/// This machine's cards, by the libraries in `folder` or the system's; why there are none.
pub(crate) fn here(folder: Option<&Path>) -> Result<Vec<CardFacts>, String> {
    let listed = listed(folder)?;
    if listed.is_empty() {
        return Err("libibverbs.so.1 lists no card".to_owned());
    }
    Ok(listed.iter().map(|(name, mlx5)| CardFacts::describe(&PathBuf::from(SYS), name, *mlx5)).collect())
}

/// Why kernels do not write a card's queues here: a line for the log.
pub(crate) fn why_not(folder: Option<&Path>) -> String {
    match here(folder) {
        Err(why) => why,
        Ok(devices) => match devices.iter().find(|device| device.is_mlx5()) {
            None => format!("{}: no mlx5 card", devices[0].name),
            // Not by default, as no card has run it (docs/rdma.md).
            Some(card) => format!("{} is here, and RUSHMEM_TRANSPORT=queue asks for it", card.name),
        },
    }
}

/// What a completion's syndrome says of a request that failed ("Mellanox Adapters Programmer's Reference
/// Manual", 8.18.4; the names are rdma-core's).
pub(crate) fn syndrome_name(syndrome: u8) -> String {
    let text = match syndrome {
        0x01 => "a length that is wrong here",
        0x02 => "a request that is wrong",
        0x04 => "local memory that is not registered so",
        0x05 => "flushed, as a request before it failed",
        0x06 => "a memory window that cannot be bound",
        0x10 => "a bad answer",
        0x11 => "local memory that cannot be accessed",
        0x12 => "a request that the peer takes for invalid",
        0x13 => "remote memory that is not registered so",
        0x14 => "the peer could not carry it out",
        0x15 => "the peer's card does not answer",
        0x16 => "the peer's card is not ready",
        0x22 => "the peer's card gave it up",
        _ => "an unknown failure",
    };
    format!("{text} (syndrome {syndrome:#04x})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_card_is_described_as_linux_has_it() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        let write = |path: &str, text: &str| {
            let file = sys.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        for (device, class) in [
            ("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", "0x030200"),
            ("pci0000:00/0000:00:05.0", "0x030200"),
            ("pci0000:80/0000:80:01.0", "0x030200"),
            ("pci0000:80/0000:80:02.0", "0x010802"),
        ] {
            write(&format!("devices/{device}/vendor"), "0x10de\n");
            write(&format!("devices/{device}/class"), class);
            fs::create_dir_all(sys.join("bus/pci/devices")).unwrap();
            let name = Path::new(device).file_name().unwrap();
            symlink(sys.join("devices").join(device), sys.join("bus/pci/devices").join(name)).unwrap();
        }
        let card = sys.join("devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0");
        fs::create_dir_all(&card).unwrap();
        write("class/infiniband/mlx5_7/ports/1/state", "4: ACTIVE\n");
        write("class/infiniband/mlx5_7/ports/1/link_layer", "InfiniBand\n");
        write("class/infiniband/mlx5_7/ports/1/rate", "400 Gb/sec (4X NDR)\n");
        write("class/infiniband/mlx5_7/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        write("class/infiniband/mlx5_7/ports/1/gids/1", "fe80:0000:0000:0000:0c42:a103:0065:1fd6\n");
        symlink(&card, sys.join("class/infiniband/mlx5_7/device")).unwrap();
        assert_eq!(
            CardFacts::describe(sys, "mlx5_7", true).to_string(),
            "mlx5_7 (mlx5); port 1: active, InfiniBand, 400 Gb/sec (4X NDR), GID fe80:0000:0000:0000:0c42:a103:0065:1fd6; \
             GPU 0000:00:05.0: behind the same PCI host bridge; GPU 0000:02:00.0: behind the same PCI switch; \
             GPU 0000:80:01.0: across PCI host bridges"
        );
        assert_eq!(CardFacts::describe(sys, "qedr0", false).to_string(), "qedr0");
    }

    /// Whatever this machine has, there is a list or a reason.
    #[test]
    fn cards_are_listed_or_a_reason_is_given() {
        match here(None) {
            Ok(devices) => assert!(devices.iter().all(|device| !device.name.is_empty())),
            Err(why) => assert!(why.contains("libibverbs"), "{why}"),
        }
        assert!(!why_not(None).is_empty());
    }
}
