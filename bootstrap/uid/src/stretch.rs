//! A secret that a person chose becomes a key that is expensive to guess: Argon2id (RFC 9106), at OWASP's
//! smallest parameters. A stranger that has recorded a handshake pays this for each guess, a process of the
//! job once.
//!
//! A unique ID's 32 random bytes need none of this and do not come here. There is no telling a good secret
//! from a poor one (64 hexadecimal digits may be the digest of a word), so everything that a person sets
//! does.

use std::sync::{Mutex, PoisonError};

use argon2::{Algorithm, Argon2, Params, Version};
use rushmem_bootstrap_abi::{BootError, BootErrorKind, Result};

use crate::auth::{digest, Token};

/// KiB of memory, passes over it, lanes: some 20 to 40 ms on a core.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);

/// Tokens that this process has derived, by a digest of what they come from: a program that begins world
/// after world, or runs its ranks as threads, pays once.
static DERIVED: Mutex<Vec<([u8; 32], Token)>> = Mutex::new(Vec::new());
const REMEMBERED: usize = 16;

/// The token of `secret`; `salt` says what for, so that work on one job's secret is lost on another's.
pub(crate) fn stretch(secret: &[u8], salt: &[u8]) -> Result<Token> {
    let from = digest(&[b"rushmem-uid stretched", salt, secret]);
    // Held meanwhile, so that threads that want the same do not all compute it.
    let mut derived = DERIVED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, token)) = derived.iter().find(|d| d.0 == from) {
        return Ok(token.clone());
    }
    let failed = |e: argon2::Error| {
        BootError::new(BootErrorKind::Internal, format!("the job's secret cannot be stretched: {e}"))
    };
    let params = Params::new(COST.0, COST.1, COST.2, Some(32)).map_err(failed)?;
    let salt = digest(&[b"rushmem-uid salt", salt]);
    let mut token = [0; 32];
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(secret, &salt, &mut token)
        .map_err(failed)?;
    if derived.len() == REMEMBERED {
        derived.remove(0);
    }
    derived.push((from, Token(token)));
    Ok(Token(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_guess_costs_time_and_memory_and_a_process_pays_once() {
        let secret: [u8; 8] = crate::auth::random().expect("random");
        let start = Instant::now();
        let token = stretch(&secret, b"job").expect("a token");
        let first = start.elapsed();
        // A digest takes a microsecond; on any machine this takes thousands of them.
        assert!(first.as_millis() >= 3, "{first:?}");
        // The best of three: the machine does other things as well.
        let hundred = || {
            let start = Instant::now();
            (0..100).for_each(|_| assert_eq!(stretch(&secret, b"job"), Ok(token.clone())));
            start.elapsed()
        };
        let later = (0..3).map(|_| hundred()).min().expect("three tries");
        assert!(later < first, "{later:?} for 100 after {first:?} for one");
        println!("stretched in {first:?}");
        assert_ne!(stretch(&secret, b"joc"), Ok(token.clone()));
        assert_ne!(stretch(&secret[1..], b"job"), Ok(token));
        const { assert!(COST.0 >= 19 * 1024 && COST.1 >= 2) };
    }
}
