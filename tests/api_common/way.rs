//! Which way leads from PE to PE where the tests run: worked out from the environment, as docs/far.md says of
//! its settings, so that what rushmem says can be compared with it.

/// The way by which PE `me` is to reach `pe`, if both are of this host and memory of its PEs can be mapped.
pub(crate) fn way_to(me: u32, pe: u32) -> &'static str {
    let setting = |name: &str| std::env::var(name).unwrap_or_default().trim().to_ascii_lowercase();
    let each = setting("RUSHMEM_PES_PER_NODE").parse::<u32>().unwrap_or(u32::MAX);
    match setting("RUSHMEM_TRANSPORT").as_str() {
        _ if me == pe => "direct",
        "ucx" => "ucx",
        // Without hosts this way leads to all PEs.
        "fake" if each == u32::MAX || me / each != pe / each => "fake",
        _ if me / each == pe / each => "direct",
        _ => "ucx",
    }
}
