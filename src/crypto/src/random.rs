//! Bytes from the system's cryptographic random number generator.

use std::cell::RefCell;

/// Fills `buffer` from the operating system's random generator.
///
/// There is nothing sensible to do without randomness, so this does not return an error:
/// once a Linux system has booted, `getrandom(2)` cannot fail.
pub(crate) fn fill_random(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("invariant: the operating system's random generator works");
}

/// Blocks drawn at once: a system call for every message would cost more than encrypting it.
const DRAWN: usize = 64;

struct Drawn {
    blocks: [[u8; 16]; DRAWN],
    used: usize,
}

impl Drawn {
    const NONE: Self = Self {
        blocks: [[0; 16]; DRAWN],
        used: DRAWN,
    };

    fn next(&mut self) -> [u8; 16] {
        if let Some(block) = self.blocks.get(self.used) {
            self.used += 1;
            return *block;
        }
        fill_random(self.blocks.as_flattened_mut());
        let [first, ..] = self.blocks;
        self.used = 1;
        first
    }
}

thread_local! {
    static DRAWN_BLOCKS: RefCell<Drawn> = const { RefCell::new(Drawn::NONE) };
}

/// 16 bytes for something that is sent in the clear (an initialisation vector, a nonce), each
/// given out once. Not for keys: the bytes lie in memory before they are used.
pub fn public_random() -> [u8; 16] {
    DRAWN_BLOCKS.with_borrow_mut(Drawn::next)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn random_bytes_never_repeat() {
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1_000).map(|_| public_random()).collect()))
            .collect();
        let given: Vec<Vec<[u8; 16]>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        let different: HashSet<_> = given.iter().flatten().collect();
        assert_eq!(different.len(), 4_000);
        assert!(!different.contains(&[0; 16]));
    }
}
