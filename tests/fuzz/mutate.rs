//! Mutations: what is done to the bytes of a corpus, from a generator that follows from its seed.

/// Numbers that stand at the bounds of lengths and counts.
const BOUNDS: [u32; 10] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    u32::MAX,
];

/// Most changes of one input.
const MAX_CHANGES: u64 = 6;

/// Deterministic random numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// The generator of the input with this number.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    fn of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> Option<&'a T> {
        items.get(self.below(items.len())).copied()
    }

    fn entry<'a>(&mut self, corpus: &'a [Vec<u8>]) -> &'a [u8] {
        let at = self.below(corpus.len());
        corpus.get(at).map(Vec::as_slice).unwrap_or_default()
    }

    /// An input made of an entry of the corpus.
    pub fn mutated(&mut self, corpus: &[Vec<u8>], words: &[&[u8]], most: usize) -> Vec<u8> {
        let mut input = self.entry(corpus).to_vec();
        for _ in 0..=self.next() % MAX_CHANGES {
            self.change(&mut input, corpus, words);
            input.truncate(most);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&[u8]]) {
        let at = self.below(input.len() + 1);
        match self.below(10) {
            0 => {
                let bit = 1 << self.below(8);
                input.get_mut(at).into_iter().for_each(|byte| *byte ^= bit);
            }
            1 => {
                let byte = u8::try_from(self.below(256)).unwrap_or(0);
                input.get_mut(at).into_iter().for_each(|old| *old = byte);
            }
            2 => {
                let byte = u8::try_from(self.below(256)).unwrap_or(0);
                input.insert(at, byte);
            }
            3 => {
                let end = input.len().min(at + 1 + self.below(16));
                input.drain(at..end);
            }
            4 => {
                let end = input.len().min(at + 1 + self.below(64));
                let part: Vec<u8> = input.get(at..end).unwrap_or_default().to_vec();
                let times = 1 + self.below(8);
                input.splice(at..at, part.repeat(times));
            }
            5 => {
                let other = self.entry(corpus);
                let from = self.below(other.len() + 1);
                let part = other.get(from..).unwrap_or_default().to_vec();
                input.truncate(at);
                input.extend(part);
            }
            6 => self.put_bound(input, at),
            7 => input.truncate(at),
            _ => {
                let word = self.of(words).unwrap_or_default();
                let end = match self.below(2) {
                    0 => at,
                    _ => input.len().min(at + word.len()),
                };
                input.splice(at..end, word.iter().copied());
            }
        }
    }

    /// Overwrites bytes by a number at the bound of a length, in one to four bytes.
    fn put_bound(&mut self, input: &mut [u8], at: usize) {
        let bound = BOUNDS.get(self.below(BOUNDS.len())).copied().unwrap_or(0);
        let bytes = bound.to_be_bytes();
        let width = 1 + self.below(4);
        let number = bytes.iter().skip(bytes.len() - width);
        let places = input.iter_mut().skip(at);
        places.zip(number).for_each(|(place, byte)| *place = *byte);
    }
}
