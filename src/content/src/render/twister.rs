//! Python's seeded `random.Random`, so that a template that shuffles by the name of a minion gives
//! the same order here and in stock.
//!
//! The generator is the Mersenne Twister of Matsumoto and Nishimura (MT19937, `init_by_array`);
//! how seeds and ranges are made from it is in `Lib/random.py`. It is no source of secrets.

use saltern_base::hex;
use sha2::{Digest as _, Sha512};

const WORDS: usize = 624;
const MIDDLE: usize = 397;

/// A seeded generator.
pub(crate) struct Twister {
    state: [u32; WORDS],
    at: usize,
}

impl Twister {
    /// The generator that a text seeds.
    pub(crate) fn of_text(text: &str) -> Twister {
        let mut seed = text.as_bytes().to_vec();
        seed.extend_from_slice(&Sha512::digest(text));
        // The bytes are one large number, the first the highest; the key is its words from the
        // lowest on.
        let key: Vec<u32> = seed
            .rchunks(4)
            .map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
            .collect();
        let length = key
            .iter()
            .rposition(|word| *word != 0)
            .map_or(1, |at| at + 1);
        Twister::of_words(key.get(..length).unwrap_or(&key))
    }

    /// The generator that a text seeds where Salt puts the text's SHA-512 in its place
    /// (`salt.utils.data.sample`).
    pub(crate) fn of_digest(text: &str) -> Twister {
        let digits = Sha512::digest(text);
        Twister::of_text(&hex(&digits))
    }

    /// A generator with a random seed.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub(crate) fn unseen() -> Result<Twister, getrandom::Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key)?;
        Ok(Twister::of_text(&hex(&key)))
    }

    /// The generator that an integer seeds; its sign does not count.
    pub(crate) fn of_int(number: i64) -> Twister {
        let number = number.unsigned_abs();
        let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
        match u32::try_from(number >> 32).unwrap_or(0) {
            0 => Twister::of_words(&[low]),
            high => Twister::of_words(&[low, high]),
        }
    }

    fn of_words(key: &[u32]) -> Twister {
        let mut state = [0; WORDS];
        let mut last: u32 = 19_650_218;
        for (index, word) in (0_u32..).zip(state.iter_mut()) {
            if index > 0 {
                last = (last ^ last >> 30)
                    .wrapping_mul(1_812_433_253)
                    .wrapping_add(index);
            }
            *word = last;
        }
        let mut twister = Twister { state, at: WORDS };
        let mut index = 1;
        let rounds = key.iter().zip(0_u32..).cycle().take(WORDS.max(key.len()));
        for (word, number) in rounds {
            index = twister.mix(index, 1_664_525, |mixed| {
                mixed.wrapping_add(*word).wrapping_add(number)
            });
        }
        for _ in 1..WORDS {
            let number = u32::try_from(index).unwrap_or(0);
            index = twister.mix(index, 1_566_083_941, |mixed| mixed.wrapping_sub(number));
        }
        if let Some(first) = twister.state.first_mut() {
            *first = 1 << 31;
        }
        twister
    }

    /// One step of the seeding; returns the index of the next.
    fn mix(&mut self, index: usize, factor: u32, add: impl Fn(u32) -> u32) -> usize {
        let before = self.word(index + WORDS - 1);
        let mixed = self.word(index) ^ (before ^ before >> 30).wrapping_mul(factor);
        self.set(index, add(mixed));
        if index + 1 < WORDS {
            return index + 1;
        }
        self.set(0, self.word(WORDS - 1));
        1
    }

    fn word(&self, index: usize) -> u32 {
        self.state.get(index % WORDS).copied().unwrap_or(0)
    }

    fn set(&mut self, index: usize, word: u32) {
        if let Some(slot) = self.state.get_mut(index % WORDS) {
            *slot = word;
        }
    }

    /// The next 32 bits.
    fn next(&mut self) -> u32 {
        if self.at >= WORDS {
            for index in 0..WORDS {
                let joined = self.word(index) & 1 << 31 | self.word(index + 1) & (u32::MAX >> 1);
                let twist = if joined & 1 == 0 { 0 } else { 0x9908_b0df };
                self.set(index, self.word(index + MIDDLE) ^ joined >> 1 ^ twist);
            }
            self.at = 0;
        }
        let mut word = self.word(self.at);
        self.at += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    /// A number of so many bits, at most 64.
    fn bits(&mut self, count: u32) -> u64 {
        if count <= 32 {
            return u64::from(self.next()).checked_shr(32 - count).unwrap_or(0);
        }
        let low = u64::from(self.next());
        low | u64::from(self.next() >> (64 - count.min(64))) << 32
    }

    /// A number below a bound, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let count = u64::BITS - bound.leading_zeros();
        loop {
            let number = self.bits(count);
            if number < bound {
                return number;
            }
        }
    }

    /// `size` different items in random order (`random.sample`); fewer if there are fewer.
    pub(crate) fn sample<T: Clone>(&mut self, items: &[T], size: usize) -> Vec<T> {
        let count = items.len();
        let size = size.min(count);
        let mut index_below = |bound: usize| {
            let bound = u64::try_from(bound).unwrap_or(u64::MAX);
            usize::try_from(self.below(bound)).unwrap_or(0)
        };
        if count <= pool_bound(size) {
            let mut pool = items.to_vec();
            return (0..size)
                .map(|taken| {
                    let at = index_below(count - taken);
                    pool.swap_remove(at)
                })
                .collect();
        }
        let mut chosen = std::collections::HashSet::new();
        let mut indices = Vec::with_capacity(size);
        while indices.len() < size {
            let at = index_below(count);
            if chosen.insert(at) {
                indices.push(at);
            }
        }
        indices
            .into_iter()
            .filter_map(|at| items.get(at).cloned())
            .collect()
    }
}

/// Up to so many items Python copies them all, above it remembers which it took.
fn pool_bound(size: usize) -> usize {
    if size <= 5 {
        return 21;
    }
    let mut power: usize = 1;
    while power < size.saturating_mul(3) {
        power = power.saturating_mul(4);
    }
    21_usize.saturating_add(power)
}

#[cfg(test)]
mod tests {
    use super::Twister;

    /// Numbers that CPython 3.11 gave.
    #[test]
    fn seeds_give_what_python_gives() {
        let mut twister = Twister::of_int(42);
        assert_eq!([0; 3].map(|_| twister.below(100)), [81, 14, 3]);
        assert_eq!(Twister::of_text("web1.example.com").below(60), 31);
        assert_eq!(Twister::of_int(-42).below(1 << 40), 247559453085);
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(Twister::of_text("x").sample(&items, 3), [80, 40, 76]);
        assert_eq!(
            Twister::of_int(1).sample(&items, 7),
            [17, 72, 97, 8, 32, 15, 63]
        );
        assert_eq!(Twister::of_int(1).sample(&[1, 2], 9).len(), 2);
    }
}
