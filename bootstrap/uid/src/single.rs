//! The bootstrap of a job of one.

use rushmem_bootstrap_abi::{BootError, BootErrorKind, Bootstrap, Result};

/// One rank, no sockets, no threads.
#[derive(Debug, Default, Clone, Copy)]
pub struct Single;

fn same_size(input: &[u8], out: &[u8]) -> Result<()> {
    if input.len() == out.len() {
        return Ok(());
    }
    let text = format!("{} bytes do not fit {} bytes in a job of one rank", input.len(), out.len());
    Err(BootError::new(BootErrorKind::InvalidArgument, text))
}

impl Bootstrap for Single {
    fn name(&self) -> &str {
        "single"
    }

    fn rank(&self) -> u32 {
        0
    }

    fn n_ranks(&self) -> u32 {
        1
    }

    fn allgather(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        same_size(input, out)?;
        out.copy_from_slice(input);
        Ok(())
    }

    fn alltoall(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        self.allgather(input, out)
    }

    fn barrier(&self) -> Result<()> {
        Ok(())
    }

    fn broadcast(&self, _buf: &mut [u8], root: u32) -> Result<()> {
        if root == 0 {
            return Ok(());
        }
        let text = format!("broadcast from rank {root} in a job of one rank");
        Err(BootError::new(BootErrorKind::InvalidArgument, text))
    }
}
