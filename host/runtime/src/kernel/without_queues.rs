//! Modules for GPUs whose kernels go by the proxy though queues of a network card lead to other PEs: kernels
//! have these where they are compiled with `RUSHMEM_NET_QUEUE` alone (`device/include/rushmem/impl/net/net.h`
//! says why). `World::peer` says of such a PE that a queue leads there, so a log line says this, once for
//! each module.

use super::KernelCore;

/// What is in a source, or an option, that says whether its kernels have queues.
const DEFINED: &str = "NET_QUEUE";

/// Neither the source nor an option says anything.
fn source_says_nothing(source: &str, options: &[String]) -> bool {
    !options.iter().map(String::as_str).chain([source]).any(|text| text.contains(DEFINED))
}

/// Machine code that has the functions of the proxy and none of queues, as far as its symbols say: what is
/// packed or stripped has none.
fn code_is_without(code: &[u8]) -> bool {
    let has = |name: &[u8]| code.windows(name.len()).any(|part| part == name);
    has(b"rushmem_far_") && !has(b"rushmem_queue_")
}

impl KernelCore {
    fn has_queues(&self) -> bool {
        !self.common.state.raw().queues.is_null()
    }

    fn say(&self, name: &str, what: &str) {
        log::warn!(
            "{}: {name}: its kernels go by the proxy, also to PEs to which a network card's queue leads: {what} \
             -DRUSHMEM_NET_QUEUE (docs/rdma.md; -DRUSHMEM_NO_NET_QUEUE says that this is wanted)",
            self.common.health.who()
        );
    }

    /// A source for a GPU is about to be compiled, with these options of the GPUs' compiler.
    pub(super) fn look_at_source(&self, name: &str, source: &str, options: &[String]) {
        if self.has_queues() && source_says_nothing(source, options) {
            self.say(name, "load it with the option");
        }
    }

    /// Another compiler's code is about to be loaded.
    pub(super) fn look_at_code(&self, name: &str, code: &[u8]) {
        if self.has_queues() && code_is_without(code) {
            self.say(name, "compile it with");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_says_whether_its_kernels_have_queues() {
        let option = |text: &str| [text.to_owned()];
        assert!(source_says_nothing("#include <rushmem/rushmem.cuh>", &option("-DN=3")));
        assert!(!source_says_nothing("#define RUSHMEM_NET_QUEUE\n", &[]));
        assert!(!source_says_nothing("", &option("-DRUSHMEM_NET_QUEUE")));
        assert!(!source_says_nothing("", &option("-DRUSHMEM_NO_NET_QUEUE=1")));
    }

    #[test]
    fn code_says_it_by_its_symbols() {
        assert!(code_is_without(b"\x7fELF $ring$rushmem_far_p rest"));
        assert!(!code_is_without(b"\x7fELF $ring$rushmem_far_p $ring$rushmem_queue_words"));
        // Without operations on far PEs, or packed.
        assert!(!code_is_without(b"\x7fELF ring") && !code_is_without(b""));
    }
}
