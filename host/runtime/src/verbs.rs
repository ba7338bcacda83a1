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
    gpus: Vec<GpuNearby>,
}

/// A GPU as a card sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GpuNearby {
    address: String,
    distance: GpuDistance,
    /// No other card whose queues kernels could write is closer to it.
    nearest: bool,
}

/// How far a card is from a GPU: the closest is the least. The words are spelled out from those of
/// `nvidia-smi topo -m` (PIX and PXB, PHB, NODE, SYS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GpuDistance {
    /// Behind a common bridge; so many others are on the way.
    Switch {
        bridges: usize,
    },
    HostBridge,
    NumaNode,
    Apart,
}

impl std::fmt::Display for GpuDistance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            GpuDistance::Switch { .. } => "behind the same PCI switch",
            GpuDistance::HostBridge => "behind the same PCI host bridge",
            GpuDistance::NumaNode => "across PCI host bridges, of the same NUMA node",
            GpuDistance::Apart => "across PCI host bridges",
        })
    }
}

impl std::fmt::Display for CardFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.name, if self.mlx5 { " (mlx5)" } else { "" })?;
        for port in &self.ports {
            let Port { number, state, link, rate, gid } = port;
            let gid = gid.as_deref().unwrap_or("none");
            write!(f, "; port {number}: {state}, {link}, {rate}, GID {gid}")?;
        }
        for GpuNearby { address, distance, nearest } in &self.gpus {
            write!(f, "; GPU {address}: {distance}{}", if *nearest { ", its nearest card" } else { "" })?;
        }
        Ok(())
    }
}

impl CardFacts {
    /// Whether kernels could write its queues.
    pub(crate) fn is_mlx5(&self) -> bool {
        self.mlx5
    }

    /// Whether a port of it is up.
    fn is_active(&self) -> bool {
        self.ports.iter().any(|port| port.state == "active")
    }

    fn distance_to(&self, gpu: &str) -> Option<GpuDistance> {
        Some(self.gpus.iter().find(|near| near.address == gpu)?.distance)
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
        let gpus = PciPlace::of(&here.join("device")).map_or_else(Vec::new, |card| {
            let near = |(address, gpu)| GpuNearby { address, distance: card.to(&gpu), nearest: false };
            gpus(sys).into_iter().map(near).collect()
        });
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

/// Of the cards whose queues kernels could write by a port that is up, the one that is closest to the GPU of
/// that PCI address: the first of several.
fn nearest<'a>(cards: &'a [CardFacts], gpu: &str) -> Option<&'a CardFacts> {
    let usable = cards.iter().filter(|card| card.is_mlx5() && card.is_active());
    usable.filter(|card| card.distance_to(gpu).is_some()).min_by_key(|card| card.distance_to(gpu))
}

/// In which order to try the cards of those names for kernels of the GPU of that PCI address, if it is one's:
/// the nearest first, of several alike as they are listed, and last those of which Linux says nothing.
pub(crate) fn nearest_first(gpu: Option<&str>, names: &[String]) -> Vec<usize> {
    nearest_first_of(Path::new(SYS), gpu, names)
}

fn nearest_first_of(sys: &Path, gpu: Option<&str>, names: &[String]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    // CUDA writes it in upper case.
    let Some(gpu) = gpu.map(str::to_ascii_lowercase) else { return order };
    order.sort_by_cached_key(|i| {
        let distance = CardFacts::describe(sys, &names[*i], true).distance_to(&gpu);
        (distance.is_none(), distance)
    });
    order
}

/// The cards of those names, each with whether it is an mlx5.
fn describe_all(sys: &Path, listed: &[(String, bool)]) -> Vec<CardFacts> {
    let mut cards: Vec<CardFacts> =
        listed.iter().map(|(name, mlx5)| CardFacts::describe(sys, name, *mlx5)).collect();
    for (gpu, _) in gpus(sys) {
        let Some(name) = nearest(&cards, &gpu).map(|card| card.name.clone()) else { continue };
        let near = cards.iter_mut().filter(|card| card.name == name).flat_map(|card| &mut card.gpus);
        near.filter(|near| near.address == gpu).for_each(|near| near.nearest = true);
    }
    cards
}

/// Where a PCI device is.
struct PciPlace {
    /// The bridges on the way to it, and itself: `pci0000:00`, `0000:00:01.0`, ...
    path: Vec<String>,
    /// `None` where Linux does not know.
    numa: Option<u32>,
}

impl PciPlace {
    fn of(device: &Path) -> Option<PciPlace> {
        let whole = fs::canonicalize(device).ok()?;
        let names = whole.iter().map(|part| part.to_string_lossy().into_owned());
        let path: Vec<String> = names.skip_while(|name| !name.starts_with("pci")).collect();
        let numa = text(&whole.join("numa_node")).and_then(|node| node.parse().ok());
        (!path.is_empty()).then_some(PciPlace { path, numa })
    }

    fn to(&self, other: &PciPlace) -> GpuDistance {
        let shared = self.path.iter().zip(&other.path).take_while(|(a, b)| a == b).count();
        match shared {
            0 if self.numa.is_some() && self.numa == other.numa => GpuDistance::NumaNode,
            0 => GpuDistance::Apart,
            1 => GpuDistance::HostBridge,
            _ => GpuDistance::Switch { bridges: self.path.len() + other.path.len() - 2 * shared },
        }
    }
}

/// NVIDIA's GPUs, by PCI address.
fn gpus(sys: &Path) -> Vec<(String, PciPlace)> {
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
            Some((entry.file_name().to_string_lossy().into_owned(), PciPlace::of(&entry.path())?))
        })
        .collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
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
    Ok(describe_all(Path::new(SYS), &listed))
}

/// Why kernels do not write a card's queues here: a line for the log.
pub(crate) fn why_not(folder: Option<&Path>) -> String {
    match here(folder) {
        Err(why) => why,
        Ok(devices) => match devices.iter().find(|device| device.is_mlx5()) {
            None => format!("{}: no mlx5 card", devices[0].name),
            // Not by default, as no card has run it (docs/rdma.md).
            Some(card) => {
                format!("{} is here, and RUSHMEM_TRANSPORT=direct,queue,ucx asks for it", card.name)
            }
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

    /// A made-up `/sys`.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Sys {
            Sys(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let file = self.0.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        /// A PCI device of that class, behind these bridges.
        fn device(&self, path: &str, class: &str, numa: i32) {
            self.write(&format!("devices/{path}/vendor"), "0x10de\n");
            self.write(&format!("devices/{path}/class"), class);
            self.write(&format!("devices/{path}/numa_node"), &format!("{numa}\n"));
            let sys = self.0.path();
            fs::create_dir_all(sys.join("bus/pci/devices")).unwrap();
            let name = Path::new(path).file_name().unwrap();
            symlink(sys.join("devices").join(path), sys.join("bus/pci/devices").join(name)).unwrap();
        }

        fn gpu(&self, path: &str, numa: i32) {
            self.device(path, "0x030200", numa);
        }

        /// A card whose first port is in that state.
        fn card(&self, name: &str, path: &str, numa: i32, state: &str) {
            self.device(path, "0x020700", numa);
            let sys = self.0.path();
            self.write(&format!("class/infiniband/{name}/ports/1/state"), state);
            symlink(sys.join("devices").join(path), sys.join(format!("class/infiniband/{name}/device")))
                .unwrap();
        }

        /// Of each GPU, its nearest card.
        fn nearest(&self, cards: &[(&str, bool)]) -> Vec<(String, Option<String>)> {
            let listed: Vec<_> = cards.iter().map(|(name, mlx5)| ((*name).to_owned(), *mlx5)).collect();
            let cards = describe_all(self.0.path(), &listed);
            let name = |gpu: &str| nearest(&cards, gpu).map(|card| card.name.clone());
            gpus(self.0.path()).into_iter().map(|(gpu, _)| (gpu.clone(), name(&gpu))).collect()
        }
    }

    const ACTIVE: &str = "4: ACTIVE\n";

    #[test]
    fn a_card_is_described_as_linux_has_it() {
        let sys = Sys::new();
        sys.gpu("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", 0);
        sys.gpu("pci0000:00/0000:00:05.0", 0);
        sys.gpu("pci0000:40/0000:40:01.0", 0);
        sys.gpu("pci0000:80/0000:80:01.0", 1);
        sys.device("pci0000:80/0000:80:02.0", "0x010802", 1);
        sys.card("mlx5_7", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0", 0, ACTIVE);
        sys.write("class/infiniband/mlx5_7/ports/1/link_layer", "InfiniBand\n");
        sys.write("class/infiniband/mlx5_7/ports/1/rate", "400 Gb/sec (4X NDR)\n");
        sys.write("class/infiniband/mlx5_7/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        sys.write("class/infiniband/mlx5_7/ports/1/gids/1", "fe80:0000:0000:0000:0c42:a103:0065:1fd6\n");
        let cards = describe_all(sys.0.path(), &[("mlx5_7".into(), true), ("qedr0".into(), false)]);
        assert_eq!(
            cards[0].to_string(),
            "mlx5_7 (mlx5); port 1: active, InfiniBand, 400 Gb/sec (4X NDR), GID fe80:0000:0000:0000:0c42:a103:0065:1fd6; \
             GPU 0000:00:05.0: behind the same PCI host bridge, its nearest card; \
             GPU 0000:02:00.0: behind the same PCI switch, its nearest card; \
             GPU 0000:40:01.0: across PCI host bridges, of the same NUMA node, its nearest card; \
             GPU 0000:80:01.0: across PCI host bridges, its nearest card"
        );
        assert_eq!(cards[1].to_string(), "qedr0");
    }

    /// Two sockets, of which each has two switches with a GPU and a card, as a DGX has them; and a GPU by
    /// itself on the second.
    #[test]
    fn the_nearest_card_is_chosen_among_those_that_can_be_used() {
        let sys = Sys::new();
        sys.gpu("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", 0);
        sys.gpu("pci0000:20/0000:20:01.0/0000:21:00.0/0000:22:00.0/0000:23:00.0", 0);
        sys.gpu("pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0", 1);
        sys.gpu("pci0000:a0/0000:a0:01.0", 1);
        // One switch further from the first GPU; beside it; on the second socket, of which one is down; and
        // one that is no mlx5.
        sys.card(
            "mlx5_0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:06:00.0/0000:07:00.0/0000:04:00.0",
            0,
            ACTIVE,
        );
        sys.card("mlx5_1", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:05:00.0", 0, ACTIVE);
        sys.card("mlx5_2", "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:84:00.0", 1, "1: DOWN\n");
        sys.card("mlx5_3", "pci0000:80/0000:80:02.0", 1, ACTIVE);
        sys.card("qedr0", "pci0000:a0/0000:a0:02.0", 1, ACTIVE);
        let all = [("mlx5_0", true), ("mlx5_1", true), ("mlx5_2", true), ("mlx5_3", true), ("qedr0", false)];
        let pairs = |nearest: [Option<&str>; 4]| {
            let gpus = ["0000:03:00.0", "0000:23:00.0", "0000:83:00.0", "0000:a0:01.0"];
            let pair = |(gpu, card): (&str, Option<&str>)| (gpu.to_owned(), card.map(ToOwned::to_owned));
            gpus.into_iter().zip(nearest).map(pair).collect::<Vec<_>>()
        };
        // The second GPU has none behind its host bridge: the first of its socket's.
        let wanted = pairs([Some("mlx5_1"), Some("mlx5_0"), Some("mlx5_3"), Some("mlx5_3")]);
        assert_eq!(sys.nearest(&all), wanted);
        // Where only the other socket has one, that one.
        assert_eq!(sys.nearest(&all[3..]), pairs([Some("mlx5_3"); 4]));
        assert_eq!(sys.nearest(&all[4..]), pairs([None; 4]));
        // A machine that does not say which socket: by host bridge alone.
        let sys = Sys::new();
        sys.gpu("pci0000:20/0000:20:01.0", -1);
        sys.card("mlx5_0", "pci0000:00/0000:00:01.0", -1, ACTIVE);
        sys.card("mlx5_1", "pci0000:20/0000:20:02.0", -1, ACTIVE);
        let cards = [("mlx5_0", true), ("mlx5_1", true)];
        assert_eq!(sys.nearest(&cards), [("0000:20:01.0".to_owned(), Some("mlx5_1".to_owned()))]);
        assert_eq!(
            describe_all(sys.0.path(), &[("mlx5_0".into(), true)])[0].gpus[0].distance,
            GpuDistance::Apart
        );
    }

    /// For kernels of a GPU all cards are tried, from the nearest on: whether it can be used shows then.
    #[test]
    fn cards_are_tried_from_the_nearest_on() {
        let sys = Sys::new();
        sys.gpu("pci0000:00/0000:00:01.0/0000:0b:00.0", 0);
        sys.gpu("pci0000:80/0000:80:01.0", 1);
        sys.card("far", "pci0000:80/0000:80:03.0", 1, ACTIVE);
        sys.card("socket", "pci0000:40/0000:40:01.0", 0, ACTIVE);
        sys.card("bridge", "pci0000:00/0000:00:02.0", 0, "1: DOWN\n");
        sys.card("switch", "pci0000:00/0000:00:01.0/0000:0c:00.0", 0, ACTIVE);
        sys.card("socket2", "pci0000:40/0000:40:02.0", 0, ACTIVE);
        let names = ["unknown", "far", "socket", "bridge", "switch", "socket2"].map(ToOwned::to_owned);
        let order = |gpu| {
            let order = nearest_first_of(sys.0.path(), gpu, &names);
            order.into_iter().map(|i| names[i].clone()).collect::<Vec<_>>()
        };
        let from_first = ["switch", "bridge", "socket", "socket2", "far", "unknown"];
        assert_eq!(order(Some("0000:0B:00.0")), from_first);
        assert_eq!(order(Some("0000:80:01.0")), ["far", "socket", "bridge", "switch", "socket2", "unknown"]);
        // A GPU that Linux does not show, and none: as they are listed.
        assert_eq!(order(Some("0000:ff:00.0")), names);
        assert_eq!(order(None), names);
        assert_eq!(nearest_first_of(sys.0.path(), Some("0000:0b:00.0"), &[]), [] as [usize; 0]);
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
