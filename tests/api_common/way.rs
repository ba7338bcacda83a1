//! Which way leads from PE to PE where the tests run: worked out from the environment, as docs/far.md says of
//! its settings, so that what rushmem says can be compared with it.

/// The way by which PE `me` is to reach `pe`, if both are of this host and memory of its PEs can be mapped.
pub fn way_to(me: u32, pe: u32) -> &'static str {
    let setting = |name: &str| std::env::var(name).unwrap_or_default().trim().to_ascii_lowercase();
    let each = setting("RUSHMEM_PES_PER_NODE").parse::<u32>().ok();
    let listed: Vec<u32> =
        setting("RUSHMEM_NODES").split(',').filter_map(|node| node.trim().parse().ok()).collect();
    let node = |pe: u32| match each {
        Some(each) => pe / each,
        None if listed.is_empty() => 0,
        None => listed[pe as usize % listed.len()],
    };
    // PEs of the stand-in for a card's libraries that have none.
    let without = setting("STAND_IN_WITHOUT");
    let has_card = |pe: u32| !without.split(',').any(|number| number.parse() == Ok(pe));
    let by_card = || if has_card(me) && has_card(pe) { "queue" } else { "ucx" };
    let divided = each.is_some() || !listed.is_empty();
    match setting("RUSHMEM_TRANSPORT").as_str() {
        _ if me == pe => "direct",
        "ucx" => "ucx",
        // Without hosts this way leads to all PEs.
        "fake" if !divided || node(me) != node(pe) => "fake",
        "queue-emulated" if !divided || node(me) != node(pe) => "queue-emulated",
        "queue" if !divided || node(me) != node(pe) => "queue",
        "queue,ucx" if !divided || node(me) != node(pe) => by_card(),
        _ if node(me) == node(pe) => "direct",
        "direct,queue,ucx" => by_card(),
        _ => "ucx",
    }
}
