//! Why MPI's start is slow: the plug-in's own code, which runs here without MPI. Its tests are in the file
//! itself.

use std::time::Duration;

#[path = "../../mpi/src/slow.rs"]
mod slow;

#[test]
fn this_host_s_name_is_looked_at_in_time() {
    let trouble = slow::name_trouble(Duration::from_secs(5));
    let text = slow::verdict(Duration::from_secs(60), trouble.as_deref());
    assert_eq!(text.contains("/etc/hosts"), trouble.is_some(), "{text}");
    println!("{text}");
}
