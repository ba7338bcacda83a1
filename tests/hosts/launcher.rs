//! `rushmem-run` over several hosts: it runs on the first one, and what it takes for `ssh` enters the others.

use std::time::{Duration, Instant};

use crate::namespaces::{on_hosts, Hosts};
use crate::programs::{self, Running};
use crate::ranks::{LIMIT, ROLE};

/// PEs on each host.
const PER_HOST: u32 = 2;

/// Starts `program` on the first `n` hosts.
#[track_caller]
fn start(net: &Hosts, n: usize, options: &[&str], program: &[&str]) -> Running {
    let enter: Vec<String> = (0..n)
        .map(|i| format!("{}) shift; exec {} -- \"$@\" ;;", net.host(i).name, net.host(i).nsenter()))
        .collect();
    let launch =
        format!("enter() {{ case $1 in {} esac; echo no host $1 >&2; exit 1; }}; enter", enter.join(" "));
    let hosts: Vec<String> = (0..n).map(|i| format!("{}:{PER_HOST}", net.host(i).name)).collect();
    let mut command = programs::launcher();
    command.args(["--hosts", &hosts.join(","), "--launch", &launch, "--tag-output", "--grace", "20"]);
    command.args(options).arg("--").args(program);
    net.host(0).enter(&mut command);
    programs::start(&mut command)
}

/// This program, to play a role.
fn player() -> Vec<String> {
    let exe = std::env::current_exe().expect("a test knows where it is");
    let words = [&*exe.to_string_lossy(), "--exact", "role", "--nocapture", "--test-threads=1"];
    words.map(str::to_owned).to_vec()
}

fn nsenter_is_here(test: &str) -> bool {
    let found = programs::installed("nsenter").is_some();
    if !found {
        eprintln!("SKIP {test}: no nsenter in PATH");
    }
    found
}

#[test]
fn near_and_far_pes_under_rushmem_run() {
    if !nsenter_is_here("near_and_far_pes_under_rushmem_run") {
        return;
    }
    on_hosts(2, |net| {
        let (player, role) = (player(), format!("{ROLE}=world mixed"));
        let program: Vec<&str> = player.iter().map(String::as_str).collect();
        let seed = format!("{}={}", crate::world::SEED, crate::world::seed());
        let ended = start(net, 2, &["--env", &role, "--env", &seed], &program).wait(LIMIT).ok();
        assert_eq!(ended.stdout.matches("@end fine").count(), 4, "{ended}");
    });
}

/// With kernels, and PEs of one host that do not follow each other.
#[test]
fn a_token_goes_round_in_turn() {
    if !nsenter_is_here("a_token_goes_round_in_turn") {
        return;
    }
    on_hosts(2, |net| {
        let ring = programs::example("ring");
        let program = [&*ring.to_string_lossy(), "--laps", "5"];
        let ended = start(net, 2, &["--map-by", "node"], &program).wait(LIMIT).ok();
        assert!(ended.stdout.contains("[0] ring: 4 PEs x 5 laps = 20 hops"), "{ended}");
    });
}

#[test]
fn an_error_on_one_host_ends_all_and_is_named_everywhere() {
    if !nsenter_is_here("an_error_on_one_host_ends_all_and_is_named_everywhere") {
        return;
    }
    on_hosts(2, |net| {
        let errors = programs::example("errors");
        for (how, pe, word) in
            [("error", "3", "out of cheese"), ("drop", "0", "left the job without finalize")]
        {
            let since = Instant::now();
            let program = [&*errors.to_string_lossy(), "--how", how, "--pe", pe];
            let ended = start(net, 2, &[], &program).wait(LIMIT).failed();
            assert!(since.elapsed() < Duration::from_secs(25), "{how} took {:?}: {ended}", since.elapsed());
            assert_eq!(ended.status.code(), Some(1), "{ended}");
            for other in ["0", "1", "2", "3"].into_iter().filter(|other| *other != pe) {
                let (tag, who) = (format!("[{other}] "), format!("PE {pe} (host "));
                let mut lines = ended.stderr.lines().filter(|line| line.starts_with(&tag));
                let named = lines.any(|line| line.contains(&who) && line.contains(word));
                assert!(named, "PE {other} does not say of PE {pe} {word:?}: {ended}");
            }
        }
    });
}

#[test]
fn a_host_under_rushmem_run_is_cut_off() {
    if !nsenter_is_here("a_host_under_rushmem_run_is_cut_off") {
        return;
    }
    on_hosts(2, |net| {
        let (player, role) = (player(), format!("{ROLE}=world wait"));
        let program: Vec<&str> = player.iter().map(String::as_str).collect();
        let options = ["--env", &role, "--env", "RUSHMEM_PEER_TIMEOUT=4"];
        let mut job = start(net, 2, &options, &program);
        job.wait_for_all("@ready", 4, LIMIT);
        net.cut(1);
        // The player ends well when it has said what it noticed.
        let ended = job.wait(LIMIT).ok();
        assert_eq!(ended.stdout.matches("host h2 with ranks 2-3").count(), 2, "{ended}");
    });
}
