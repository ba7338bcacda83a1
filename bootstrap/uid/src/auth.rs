//! The shared key of a job and the proofs made with it. Both sides of every connection show that they hold
//! the key by an HMAC-SHA256 over two fresh nonces (one from each side), their role, the connection's purpose
//! and what they claim, so that the key itself never travels and no proof can be replayed or reflected
//! (`handshake` says in which order). Traffic after the handshake is neither signed nor encrypted: an
//! attacker who can read or rewrite packets on the job's network is outside this model.
//!
//! A stranger that has seen a proof can try keys until one fits. That is hopeless for 32 random bytes, as in
//! a unique ID; a secret that a person chose is stretched first (`stretch`), so that each try costs what
//! deriving the key costs.

use hmac::{Hmac, KeyInit, Mac};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};
use sha2::{Digest, Sha256};

/// Random or derived 32 bytes that only the job's processes hold.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) [u8; 32]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)") // a secret does not belong in logs
    }
}

/// A job's name, which is public, and its token, which is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) job: [u8; JOB_BYTES],
    pub(crate) token: Token,
}

/// Bytes of a job's public name.
pub(crate) const JOB_BYTES: usize = 16;

/// What a connection is for; a proof for one purpose is worthless for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// A rank joins a job.
    Rendezvous = 1,
    /// Two ranks of a job connect.
    Mesh = 2,
}

impl Purpose {
    /// For texts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Purpose::Rendezvous => "joining a job",
            Purpose::Mesh => "a connection within a job",
        }
    }
}

/// Which end of the connection a proof is of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// The side that dialled.
    Initiator,
    /// The side that listened.
    Acceptor,
}

/// `N` bytes from the operating system's generator.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| {
        BootError::new(BootErrorKind::Io, format!("the operating system gave no random bytes: {e}"))
    })?;
    Ok(bytes)
}

/// SHA-256 over length-prefixed parts, so that ("a", "bc") and ("ab", "c") differ.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The public name of the job that these parts name.
pub(crate) fn job_name(parts: &[&[u8]]) -> [u8; JOB_BYTES] {
    *digest(&[&[&b"rushmem-uid job"[..]], parts].concat()).first_chunk().expect("a digest has 32 bytes")
}

impl Token {
    /// A fresh one.
    pub(crate) fn random() -> Result<Token> {
        Ok(Token(random()?))
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

impl Key {
    /// The key of the mesh of one start of a job: a process left over from an earlier start (same unique ID
    /// or same launcher variables) cannot connect into a later one.
    pub(crate) fn for_session(&self, session: &[u8; 32]) -> Key {
        let token = Token(self.token.mac(&[b"rushmem-uid session", session]).finalize().into_bytes().into());
        Key { job: self.job, token }
    }

    fn claim(&self, role: Role, purpose: Purpose, nonces: [&[u8; 32]; 2], body: &[u8]) -> Hmac<Sha256> {
        let role: &[u8] = match role {
            Role::Initiator => b"initiator",
            Role::Acceptor => b"acceptor",
        };
        let label = b"rushmem-uid v3";
        self.token.mac(&[label, role, &[purpose as u8], &self.job, nonces[0], nonces[1], body])
    }

    /// The proof of `role` over the nonces (initiator's, acceptor's) and `body`.
    pub(crate) fn prove(
        &self,
        role: Role,
        purpose: Purpose,
        nonces: [&[u8; 32]; 2],
        body: &[u8],
    ) -> [u8; 32] {
        self.claim(role, purpose, nonces, body).finalize().into_bytes().into()
    }

    /// Whether `proof` is what [`Key::prove`] makes, in constant time.
    pub(crate) fn holds(
        &self,
        proof: &[u8; 32],
        role: Role,
        purpose: Purpose,
        nonces: [&[u8; 32]; 2],
        body: &[u8],
    ) -> bool {
        self.claim(role, purpose, nonces, body).verify_slice(proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proofs_bind_every_part() {
        let key = Key { job: [5; JOB_BYTES], token: Token::random().expect("random") };
        let (a, b) = ([1; 32], [2; 32]);
        let proof = key.prove(Role::Initiator, Purpose::Mesh, [&a, &b], b"body");
        assert!(key.holds(&proof, Role::Initiator, Purpose::Mesh, [&a, &b], b"body"));
        assert!(!key.holds(&proof, Role::Acceptor, Purpose::Mesh, [&a, &b], b"body"));
        assert!(!key.holds(&proof, Role::Initiator, Purpose::Rendezvous, [&a, &b], b"body"));
        assert!(!key.holds(&proof, Role::Initiator, Purpose::Mesh, [&b, &a], b"body"));
        assert!(!key.holds(&proof, Role::Initiator, Purpose::Mesh, [&a, &b], b"bodz"));
        let other = Key { token: Token::random().expect("random"), ..key.clone() };
        assert!(!other.holds(&proof, Role::Initiator, Purpose::Mesh, [&a, &b], b"body"));
        let elsewhere = Key { job: [6; JOB_BYTES], ..key.clone() };
        assert!(!elsewhere.holds(&proof, Role::Initiator, Purpose::Mesh, [&a, &b], b"body"));
        assert_ne!(key.for_session(&a).token, key.for_session(&b).token);
        assert_eq!(format!("{:?}", key.token), "Token(…)");
    }

    #[test]
    fn digests_tell_parts_apart() {
        assert_ne!(digest(&[b"a", b"bc"]), digest(&[b"ab", b"c"]));
    }
}
