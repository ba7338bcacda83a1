//! Whether cards update words for kernels (`device/include/rushmem/card_word.h`): on all PEs of a job or on
//! none, as a word that a card updates is nobody else's.

use rushmem_abi::device::RawQueues;

use super::Queues;
use crate::error::Result;

impl Queues {
    /// Why this PE's kernels could not let cards update words of all PEs; `None`: they could.
    pub(in crate::net) fn why_no_words(&self) -> Option<String> {
        if !self.card.updates_words() {
            return Some(format!("this card has no atomics ({})", self.card.about()));
        }
        let pe = self.has.iter().position(|has| !has)?;
        let why = self.left_out[pe].as_deref().unwrap_or_default();
        let which = if pe == self.me { "this PE itself".to_owned() } else { format!("PE {pe}") };
        Some(format!("no queue leads to {which}: {why}"))
    }

    /// All PEs could, so cards do. No kernel runs, and no symmetric memory is registered yet.
    pub(in crate::net) fn let_cards_update_words(&mut self) -> Result<()> {
        self.words = true;
        let at = std::mem::offset_of!(RawQueues, card_words);
        self.device.write(&[(self.places().head() + at, &[1])])
    }

    /// Whether cards update words.
    pub(in crate::net) fn cards_update_words(&self) -> bool {
        self.words
    }
}

#[cfg(test)]
mod tests {
    use super::super::card::{
        AccessRights, NetworkCard, OpenQueue, QueueArea, QueueMemory, QueueNeeds, RegionKeys,
    };
    use super::super::emulated::SoftwareCard;
    use super::*;
    use crate::error::Error;
    use crate::net::transport::Memory;

    /// The software card, but for what it cannot do.
    struct WithoutAtomics(SoftwareCard);

    impl NetworkCard for WithoutAtomics {
        fn name(&self) -> &'static str {
            self.0.name()
        }
        fn about(&self) -> String {
            "a lesser card".into()
        }
        fn needs(&self, slots: usize) -> QueueNeeds {
            self.0.needs(slots)
        }
        fn address(&self) -> Vec<u8> {
            self.0.address()
        }
        unsafe fn open(
            &mut self,
            area: QueueArea,
            n: usize,
            all: Vec<Option<QueueMemory>>,
        ) -> Result<Vec<OpenQueue>> {
            // SAFETY: as the caller says.
            unsafe { self.0.open(area, n, all) }
        }
        fn connect(&mut self, addresses: &[Option<Vec<u8>>]) -> Result<Vec<Option<Error>>> {
            self.0.connect(addresses)
        }
        fn updates_words(&self) -> bool {
            false
        }
        unsafe fn register(&mut self, memory: Memory, at: u64, rights: AccessRights) -> Result<RegionKeys> {
            // SAFETY: as the caller says.
            unsafe { self.0.register(memory, at, rights) }
        }
        fn forget(&mut self, keys: RegionKeys) {
            self.0.forget(keys);
        }
        fn halt(&self) {}
    }

    #[test]
    fn cards_update_words_where_all_queues_are_there_and_the_card_can() {
        let card = || SoftwareCard::new(1, None, None, 0, None).unwrap();
        let new =
            |card: Box<dyn NetworkCard>| Queues::new(1, 3, (1, 64), None, card, Default::default()).unwrap();
        let header = |queues: &Queues| {
            // SAFETY: the header, which nobody writes now.
            unsafe { (queues.device_address() as *const RawQueues).read() }.card_words
        };
        let mut queues = new(Box::new(card()));
        assert_eq!((queues.why_no_words(), queues.cards_update_words(), header(&queues)), (None, false, 0));
        queues.let_cards_update_words().unwrap();
        assert_eq!((queues.cards_update_words(), header(&queues)), (true, 1));

        let why = |text: &str| Some(text.to_owned());
        let lesser = new(Box::new(WithoutAtomics(card())));
        assert_eq!(lesser.why_no_words(), why("this card has no atomics (a lesser card)"));
        for (pe, says) in [(1, "no queue leads to this PE itself: down"), (2, "no queue leads to PE 2: down")]
        {
            let mut queues = new(Box::new(card()));
            let mut left = vec![None; 3];
            left[pe] = why("down");
            queues.leave_out(&left).unwrap();
            assert_eq!(queues.why_no_words(), why(says));
        }
    }
}
