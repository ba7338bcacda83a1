//! What the check of operations and those who carry them out need of a world. They stand below it and know no
//! more of it.

use std::sync::Arc;
use std::time::Duration;

use rushmem_device_cpu::check;

use super::World;
use crate::config::launches::Launches;
use crate::error::Result;
use crate::exec::context::Contexts;
use crate::exec::gpu::GpuEngine;
use crate::exec::Home;
use crate::health::Health;
use crate::kernel::Kernels;
use crate::net::Far;
use crate::op::{Reach, Reached};
use crate::topology::near::Near;
use crate::trace::Trace;

impl Reach for World {
    #[inline(always)]
    fn reach(&self, at: usize, bytes: usize, pe: i32) -> Result<(usize, Reached)> {
        self.route(at, bytes, pe)
    }

    #[inline]
    fn own(&self, at: usize, bytes: usize) -> Result<usize> {
        self.check_local(at, bytes)
    }

    #[inline]
    fn own_if_symmetric(&self, at: usize, bytes: usize) -> Option<usize> {
        self.find_local(at, bytes)
    }
}

impl Home for World {
    fn health(&self) -> &Arc<Health> {
        self.health()
    }

    fn launches(&self) -> &Launches {
        &self.config().launches
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.config().wait_timeout
    }

    fn engine(&self) -> Option<&GpuEngine> {
        self.engine()
    }

    fn far(&self) -> Option<&Arc<Far>> {
        self.far()
    }

    fn contexts(&self) -> &Contexts {
        &self.contexts
    }

    fn near(&self) -> &Arc<Near> {
        self.near()
    }

    fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }

    fn check(&self) -> Option<&Arc<check::World>> {
        self.check.as_ref()
    }

    fn kernels(&self) -> &Kernels {
        self.kernels()
    }

    fn offset_of(&self, at: usize) -> Option<usize> {
        self.offset_of(at)
    }
}
