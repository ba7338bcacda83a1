//! What only the processes of a job know, for jobs that meet over the network by a launcher's variables: all
//! the rest (host, port, job number) others can guess. The environment of a process can be read by its user
//! and root alone, so what counts is whether a value can be seen or computed elsewhere.
//!
//! | launcher | its variables | a secret? |
//! |---|---|---|
//! | any | `RUSHMEM_JOB_SECRET` | as good as it was chosen |
//! | Open MPI's mpirun, version 4 | `OMPI_MCA_orte_precondition_transports`: 128 random bits for each job | yes |
//! | Slurm (srun) | job and step numbers, host lists, srun's ports: `scontrol` and `ss` show them to all | none |
//! | Slurm with PMIx | the variable above, computed from the job's number; `PMIX_NAMESPACE`, the same | none |
//! | torchrun | `TORCHELASTIC_RUN_ID`: "none", or from the command line (`ps`), or a store that asks nobody who it is | none |
//!
//! rushmem-run makes a unique ID, and MPI's launchers let MPI carry one: neither comes here.

use super::vars::Vars;
use crate::config::SECRET_VARIABLE;

const TRANSPORT_KEY: &str = "OMPI_MCA_orte_precondition_transports";

/// The job's secret, and the variable that it is from.
pub(super) fn of(vars: &Vars<'_>) -> Option<(String, &'static str)> {
    let own = vars.get(SECRET_VARIABLE).map(|s| (s, SECRET_VARIABLE));
    own.or_else(|| open_mpi(vars).map(|s| (s, TRANSPORT_KEY)))
}

/// Open MPI's, where mpirun started these very ranks and a script translated its numbers into torchrun's.
/// Numbers that differ mean another launcher in between, whose ranks need not have one mpirun in common.
fn open_mpi(vars: &Vars<'_>) -> Option<String> {
    let same = |ours, theirs| vars.get(ours).is_some_and(|v| vars.get(theirs) == Some(v));
    if !same("RANK", "OMPI_COMM_WORLD_RANK") || !same("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE") {
        return None;
    }
    vars.get(TRANSPORT_KEY).filter(|key| is_transport_key(key))
}

/// Two numbers of 16 digits, as mpirun draws them. Slurm's PMIx plug-in says job and step number there,
/// twice.
fn is_transport_key(text: &str) -> bool {
    let halves = text.split_once('-');
    halves.is_some_and(|(a, b)| {
        a != b && [a, b].iter().all(|h| h.len() == 16 && h.bytes().all(|d| d.is_ascii_hexdigit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> Option<(String, &'static str)> {
        of(&Vars(&|name| set.iter().find(|v| v.0 == name).map(|v| v.1.to_owned())))
    }

    #[test]
    fn only_what_others_cannot_know_counts() {
        let key = "84618c401b6d3575-0f2a9ed5f0ab01eb";
        let ranks = [("RANK", "1"), ("WORLD_SIZE", "4")];
        let mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4"), (TRANSPORT_KEY, key)];
        let all = [&ranks[..], &mpi[..]].concat();
        assert_eq!(with(&all), Some((key.into(), TRANSPORT_KEY)));
        let own = [&all[..], &[(SECRET_VARIABLE, "mine")]].concat();
        assert_eq!(with(&own), Some(("mine".into(), SECRET_VARIABLE)));
        // Another launcher's ranks inside mpirun's, no ranks of torchrun's, Slurm's numbers, no key at all.
        for (name, value) in [
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("RANK", "0"),
            (TRANSPORT_KEY, "0000004d00000000-0000004d00000000"),
            (TRANSPORT_KEY, ""),
            (TRANSPORT_KEY, "77"),
        ] {
            let mut changed = all.clone();
            changed.iter_mut().filter(|v| v.0 == name).for_each(|v| v.1 = value);
            assert_eq!(with(&changed), None, "{name}={value}");
        }
        assert_eq!(with(&mpi), None);
        assert_eq!(with(&[("TORCHELASTIC_RUN_ID", key), ("PMIX_NAMESPACE", key)]), None);
    }
}
