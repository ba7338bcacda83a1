//! Tables of environments: what each launcher sets, alone and nested, and what is wrong.

use super::*;

fn with(vars: &[(&str, &str)]) -> Result<Launch> {
    detect(&|name| vars.iter().find(|v| v.0 == name).map(|v| v.1.to_owned()))
}

const TORCH: [(&str, &str); 8] = [
    ("RANK", "3"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "node0"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "abc"),
    ("TORCHELASTIC_RESTART_COUNT", "2"),
];
const OMPI: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
];
const HYDRA: [(&str, &str); 4] =
    [("PMI_RANK", "2"), ("PMI_SIZE", "6"), ("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "3")];
const SLURM: [(&str, &str); 7] = [
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "99"),
    ("SLURM_STEP_NUM_TASKS", "16"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_STEP_NODELIST", "n[01-03,7],gpu5"),
];
/// What a batch script or salloc's shell sees.
const ALLOCATION: [(&str, &str); 5] = [
    ("SLURM_JOB_ID", "77"),
    ("SLURM_PROCID", "0"),
    ("SLURM_NTASKS", "16"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_JOB_NODELIST", "n1"),
];

fn both<'a>(a: &[(&'a str, &'a str)], b: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [a, b].concat()
}

fn summary(launch: &Launch) -> (&'static str, u32, u32, Option<u32>) {
    let name = match launch.launcher {
        Launcher::RushmemRun { .. } => "rushmem-run",
        Launcher::Torchrun { .. } => "torchrun",
        Launcher::Slurm { .. } => "slurm",
        Launcher::OpenMpi { .. } => "ompi",
        Launcher::Mpich { .. } => "mpich",
        Launcher::None => return ("none", 0, 1, None),
    };
    let r = launch.ranks().expect("a launcher gives ranks");
    (name, r.rank, r.n_ranks, r.local_rank)
}

#[test]
fn launchers_are_recognised() {
    let uid = Uid::new(crate::Address::Net(([127, 0, 0, 1], 9).into())).expect("random").to_hex();
    let run = [
        ("RUSHMEM_PE", "0"),
        ("RUSHMEM_NPES", "2"),
        ("RUSHMEM_UID", uid.as_str()),
        ("RUSHMEM_LOCAL_PE", "0"),
    ];
    let step_pmi = [("PMI_RANK", "5"), ("PMI_SIZE", "16")];
    let batch = [("SLURM_STEP_ID", "4294967291")];
    let env_style = [("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "1")];
    let empty = [("RANK", ""), ("WORLD_SIZE", " ")];
    for (vars, want, part) in [
        (run.to_vec(), ("rushmem-run", 0, 2, Some(0)), "RUSHMEM_PE=0"),
        (both(&run, &TORCH), ("rushmem-run", 0, 2, Some(0)), "meets at 127.0.0.1:9"),
        (TORCH.to_vec(), ("torchrun", 3, 8, Some(1)), "RANK=3 WORLD_SIZE=8"),
        (env_style.to_vec(), ("torchrun", 0, 1, None), "MASTER_ADDR=h"),
        (both(&TORCH, &OMPI), ("torchrun", 3, 8, Some(1)), "MASTER_ADDR=node0"),
        (both(&TORCH, &SLURM), ("torchrun", 3, 8, Some(1)), "torchrun"),
        (OMPI.to_vec(), ("ompi", 1, 4, Some(1)), "OMPI_COMM_WORLD_SIZE=4"),
        (both(&OMPI, &SLURM), ("ompi", 1, 4, Some(1)), "Open MPI"),
        (both(&OMPI, &[("RANK", "1")]), ("ompi", 1, 4, Some(1)), "Open MPI"),
        (both(&OMPI, &[("MASTER_ADDR", "h"), ("MASTER_PORT", "1")]), ("ompi", 1, 4, Some(1)), "Open MPI"),
        (HYDRA.to_vec(), ("mpich", 2, 6, Some(0)), "PMI_RANK=2"),
        (both(&HYDRA, &SLURM), ("mpich", 2, 6, Some(0)), "PMI_SIZE=6"),
        (SLURM.to_vec(), ("slurm", 5, 16, Some(1)), "job 77 step 0"),
        (both(&SLURM, &step_pmi), ("slurm", 5, 16, Some(1)), "n01"),
        (ALLOCATION.to_vec(), ("none", 0, 1, None), "srun"),
        (both(&ALLOCATION, &batch), ("none", 0, 1, None), "allocation 77"),
        (both(&ALLOCATION, &OMPI), ("ompi", 1, 4, Some(1)), "Open MPI"),
        (both(&ALLOCATION, &HYDRA), ("mpich", 2, 6, Some(0)), "MPICH"),
        (vec![], ("none", 0, 1, None), "single PE"),
        (empty.to_vec(), ("none", 0, 1, None), "single PE"),
    ] {
        let launch = with(&vars).unwrap_or_else(|e| panic!("{vars:?}: {e}"));
        assert_eq!(summary(&launch), want, "{vars:?}");
        assert!(launch.why.contains(part) && !launch.why.contains('\n'), "{}", launch.why);
    }
}

#[test]
fn what_is_wrong_is_named() {
    let without = |of: &[(&'static str, &'static str)], name: &str| -> Vec<_> {
        of.iter().copied().filter(|v| v.0 != name).collect()
    };
    let set = |of: &[(&'static str, &'static str)], name: &'static str, value: &'static str| -> Vec<_> {
        both(&without(of, name), &[(name, value)])
    };
    for (vars, parts) in [
        (vec![("RANK", "1")], ["WORLD_SIZE is not set", "RANK=1"]),
        (without(&TORCH, "WORLD_SIZE"), ["WORLD_SIZE is not set", "torchrun"]),
        (without(&TORCH, "RANK"), ["RANK is not set", "WORLD_SIZE=8"]),
        (without(&TORCH, "MASTER_ADDR"), ["MASTER_ADDR is not set", "torchrun"]),
        (without(&TORCH, "MASTER_PORT"), ["MASTER_PORT is not set", "torchrun"]),
        (both(&OMPI, &without(&TORCH, "RANK")), ["RANK is not set", "torchrun"]),
        (set(&TORCH, "RANK", "8"), ["RANK=8 is not below WORLD_SIZE=8", "torchrun"]),
        (set(&TORCH, "RANK", "-1"), ["RANK=-1 is not a whole number", "torchrun"]),
        (set(&TORCH, "WORLD_SIZE", "many"), ["WORLD_SIZE=many", "torchrun"]),
        (set(&TORCH, "MASTER_PORT", "70000"), ["MASTER_PORT=70000", "torchrun"]),
        (set(&TORCH, "LOCAL_RANK", "2"), ["LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "torchrun"]),
        (set(&TORCH, "LOCAL_WORLD_SIZE", "9"), ["LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"]),
        (without(&OMPI, "OMPI_COMM_WORLD_SIZE"), ["OMPI_COMM_WORLD_SIZE is not set", "mpirun"]),
        (set(&OMPI, "OMPI_COMM_WORLD_RANK", "4"), ["OMPI_COMM_WORLD_RANK=4", "mpirun"]),
        (without(&HYDRA, "PMI_RANK"), ["PMI_RANK is not set", "mpiexec"]),
        (without(&SLURM, "SLURM_PROCID"), ["SLURM_PROCID is not set", "srun"]),
        (without(&without(&SLURM, "SLURM_NTASKS"), "SLURM_STEP_NUM_TASKS"), ["SLURM_STEP_NUM_TASKS", "srun"]),
        (set(&SLURM, "SLURM_PROCID", "16"), ["SLURM_PROCID=16", "SLURM_STEP_NUM_TASKS=16"]),
        (without(&SLURM, "SLURM_JOB_ID"), ["SLURM_JOB_ID is not set", "srun"]),
        (without(&SLURM, "SLURM_STEP_NODELIST"), ["SLURM_STEP_NODELIST is not set", "srun"]),
        (set(&SLURM, "SLURM_STEP_NODELIST", "n[1-"), ["SLURM_STEP_NODELIST=n[1-", "srun"]),
        (vec![("RUSHMEM_PE", "0")], ["RUSHMEM_NPES is not set", "rushmem-run"]),
        (vec![("RUSHMEM_PE", "0"), ("RUSHMEM_NPES", "1")], ["RUSHMEM_UID is not set", "RUSHMEM_PE=0"]),
        (
            vec![("RUSHMEM_PE", "0"), ("RUSHMEM_NPES", "1"), ("RUSHMEM_UID", "00ff")],
            ["RUSHMEM_UID=00ff", "2 bytes"],
        ),
    ] {
        let error = with(&vars).expect_err("a contradiction");
        assert_eq!(error.kind, BootErrorKind::Environment, "{vars:?}");
        assert!(parts.iter().all(|p| error.message.contains(p)), "{vars:?}: {error}");
    }
}

#[test]
fn jobs_meet_apart() {
    let meeting = |vars: &[(&str, &str)]| match with(vars).expect("a launch").launcher {
        Launcher::Torchrun { meeting, .. } | Launcher::Slurm { meeting, .. } => meeting,
        other => panic!("{other:?}"),
    };
    let changed = |of: &[(&'static str, &'static str)], name: &'static str, value: &'static str| {
        let kept = of.iter().copied().filter(|v| v.0 != name).collect::<Vec<_>>();
        meeting(&both(&kept, &[(name, value)]))
    };
    let base = meeting(&TORCH);
    assert_eq!(base.taken, Some(29500));
    for (name, value) in [
        ("MASTER_PORT", "29501"),
        ("MASTER_ADDR", "node1"),
        ("TORCHELASTIC_RUN_ID", "abd"),
        ("WORLD_SIZE", "9"),
    ] {
        assert_ne!(changed(&TORCH, name, value).ports(), base.ports(), "{name}");
    }
    // A secret is nothing that shows.
    let secret = changed(&TORCH, SECRET_VARIABLE, "s");
    assert_eq!(secret.ports(), base.ports());
    assert_eq!((base.secret, secret.secret), (None, Some(("s".into(), SECRET_VARIABLE))));
    let base = meeting(&TORCH);
    // Ranks of one job agree; restarts differ on a single node only.
    assert_eq!(changed(&TORCH, "RANK", "0"), base);
    assert_eq!(changed(&TORCH, "TORCHELASTIC_RESTART_COUNT", "3"), base);
    assert_ne!(changed(&TORCH, "LOCAL_WORLD_SIZE", "8"), base);
    let step = meeting(&SLURM);
    assert_eq!(step.host, "n01");
    assert_eq!(changed(&SLURM, "SLURM_PROCID", "0"), step);
    assert_ne!(changed(&SLURM, "SLURM_STEP_ID", "1").ports(), step.ports());
    assert_ne!(changed(&SLURM, "SLURM_JOB_ID", "78").ports(), step.ports());
}

#[test]
fn launchers_say_whether_one_host_is_all() {
    let one = |vars: &[(&str, &str)]| match with(vars).expect("a launch").launcher {
        Launcher::Torchrun { meeting, .. } | Launcher::Slurm { meeting, .. } => meeting.one_host,
        other => panic!("{other:?}"),
    };
    let set = |of: &[(&'static str, &'static str)], vars: &[(&'static str, &'static str)]| {
        let mut all = of.to_vec();
        all.retain(|v| !vars.iter().any(|w| w.0 == v.0));
        one(&both(&all, vars))
    };
    assert_eq!(set(&TORCH, &[]), None);
    assert!(set(&TORCH, &[("LOCAL_WORLD_SIZE", "8")]).is_some_and(|why| why.contains("LOCAL_WORLD_SIZE")));
    // Who says how many are local is believed, whatever the address.
    assert_eq!(set(&TORCH, &[("MASTER_ADDR", "localhost")]), None);
    for (host, alone) in [("localhost", true), ("127.0.0.1", true), ("::1", true), ("node0", false)] {
        assert_eq!(
            set(&TORCH, &[("LOCAL_WORLD_SIZE", ""), ("MASTER_ADDR", host)]).is_some(),
            alone,
            "{host}"
        );
    }
    for (list, number, alone) in [
        ("n[01-03,7],gpu5", "", false),
        ("n01", "", true),
        ("n01", "1", true),
        ("n[01]", "1", true),
        ("n[01-02]", "", false),
        ("n01,n02", "", false),
        ("n01", "2", false), // the list may be the job's first node only
    ] {
        let vars = [("SLURM_STEP_NODELIST", list), ("SLURM_STEP_NUM_NODES", number)];
        assert_eq!(set(&SLURM, &vars).is_some(), alone, "{list} {number}");
    }
    let job = [("SLURM_STEP_NODELIST", "n01"), ("SLURM_JOB_NUM_NODES", "4")];
    let parts = [("SLURM_STEP_NUM_NODES", "1"), ("SLURM_HET_SIZE", "2")];
    assert_eq!(set(&SLURM, &parts), None, "a node in each of two parts");
    assert_eq!(set(&SLURM, &job), None, "the job's number of nodes, where the step does not say its own");
}

#[test]
fn host_lists() {
    for (list, host) in [
        ("n[01-03,7],gpu5", Some("n01")),
        ("gpu5,n[01-03]", Some("gpu5")),
        ("r[1-2]n[3,4]", Some("r1n3")),
        ("a-b.c_d", Some("a-b.c_d")),
        ("n[007]x", Some("n007x")),
        ("10.0.0.1", Some("10.0.0.1")),
        (" n1 ", Some("n1")),
        ("", None),
        (",", None),
        ("n[", None),
        ("n[]", None),
        ("n[1", None),
        ("n[a-b]", None),
        ("n[1-2", None),
        ("n 1", None),
    ] {
        assert_eq!(first_host(list).as_deref(), host, "{list:?}");
    }
}

#[test]
fn mpi_and_nothing_give_no_place_to_meet() {
    for vars in [&OMPI[..], &HYDRA[..], &[]] {
        let error = with(vars).expect("a launch").join(UidConfig::new(0, 1)).expect_err("no place");
        assert_eq!(error.kind, BootErrorKind::Environment);
    }
}
