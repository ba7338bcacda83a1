//! The keys under which PEs seal what they send each other: one for each direction between two PEs, which no
//! third party has.
//!
//! Each PE draws a secret when its transport is made. The public half travels with its address, by the
//! bootstrap, and two PEs make of their halves what they alone can make (X25519, RFC 7748). A process that
//! only reads the bootstrap's traffic learns no key. One that can rewrite it is outside this model, as it is
//! for the bootstrap. A secret belongs to one world: messages of another world do not verify.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use x25519_dalek::{PublicKey, StaticSecret};

use super::seal::{Seal, KEY};
use crate::error::{err, Result};
use crate::topology::card::random;

/// Bytes of the public half.
pub(super) const PUBLIC: usize = 32;

/// Names what the keys are for.
const CONTEXT: &[u8] = b"rushmem far messages, version 1";

/// This PE's secret, and what the others have made known of theirs.
pub(super) struct Keys {
    me: usize,
    secret: StaticSecret,
    public: [u8; PUBLIC],
    theirs: Vec<[u8; PUBLIC]>,
}

/// What this PE shares with another one.
pub(super) struct PairKeys {
    /// For what it sends there.
    pub(super) out: Seal,
    /// For what comes from there.
    pub(super) back: Seal,
}

impl Keys {
    pub(super) fn new(me: usize) -> Result<Keys> {
        let secret = StaticSecret::from(random::<PUBLIC>()?);
        let public = PublicKey::from(&secret).to_bytes();
        Ok(Keys { me, secret, public, theirs: Vec::new() })
    }

    /// What the others are to be given.
    pub(super) fn public(&self) -> [u8; PUBLIC] {
        self.public
    }

    /// What they have given, PE by PE.
    pub(super) fn learn(&mut self, theirs: Vec<[u8; PUBLIC]>) {
        self.theirs = theirs;
    }

    /// So many PEs are known.
    pub(super) fn len(&self) -> usize {
        self.theirs.len()
    }

    /// What this PE and `pe` share. It takes tens of microseconds: once for each PE.
    pub(super) fn share(&self, pe: usize) -> Result<PairKeys> {
        let public = PublicKey::from(self.theirs[pe]);
        let secret = self.secret.diffie_hellman(&public);
        if !secret.was_contributory() {
            return Err(err!(INTERNAL, "PE {pe} gave a public key that makes no secret"));
        }
        let key = |from: usize, to: usize| {
            let mut key = [0; KEY];
            for (part, place) in key.chunks_exact_mut(32).enumerate() {
                let mut mac =
                    Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
                mac.update(CONTEXT);
                for word in [part, from, to] {
                    mac.update(&(word as u64).to_le_bytes());
                }
                mac.update(&self.public_of(from));
                mac.update(&self.public_of(to));
                place.copy_from_slice(&mac.finalize().into_bytes());
            }
            Seal::new(&key)
        };
        Ok(PairKeys { out: key(self.me, pe), back: key(pe, self.me) })
    }

    fn public_of(&self, pe: usize) -> [u8; PUBLIC] {
        if pe == self.me {
            self.public
        } else {
            self.theirs[pe]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::transport::ucx::seal::SealKind;

    fn job(n: usize) -> Vec<Keys> {
        let mut all: Vec<Keys> = (0..n).map(|me| Keys::new(me).unwrap()).collect();
        let public: Vec<_> = all.iter().map(Keys::public).collect();
        all.iter_mut().for_each(|keys| keys.learn(public.clone()));
        all
    }

    #[test]
    fn two_pes_share_what_nobody_else_has() {
        let all = job(3);
        let tag = |seal: &Seal| seal.tag(SealKind::Message, &[b"data"]);
        let [ab, ba, ac, ca] = [(0, 1), (1, 0), (0, 2), (2, 0)].map(|(me, pe)| all[me].share(pe).unwrap());
        assert_eq!(tag(&ab.out), tag(&ba.back));
        assert_eq!(tag(&ab.back), tag(&ba.out));
        assert_eq!(tag(&ac.out), tag(&ca.back));
        // Another direction, another PE, another world.
        let again = job(3);
        let others = [&ab.back, &ac.out, &ac.back, &again[0].share(1).unwrap().out];
        assert!(others.into_iter().all(|other| tag(&ab.out) != tag(other)));
        // A PE may speak to itself.
        let own = all[2].share(2).unwrap();
        assert_eq!(tag(&own.out), tag(&own.back));
    }

    #[test]
    fn a_key_that_makes_no_secret_is_refused() {
        let mut keys = Keys::new(0).unwrap();
        keys.learn(vec![keys.public(), [0; PUBLIC]]);
        assert!(keys.share(1).is_err());
    }
}
