//! Text that looks like text, the same in every run.

/// SplitMix64: a few instructions, and every seed gives a good sequence.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`, evenly enough.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit as u64)).unwrap_or(0)
    }

    /// Between 0 and 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const SYLLABLES: [&str; 40] = [
    "ba", "con", "de", "er", "fi", "gra", "he", "in", "jo", "ka", "le", "men", "no", "or", "per", "qui",
    "re", "sta", "ti", "un", "ver", "wi", "xa", "yo", "za", "al", "be", "cor", "da", "en", "for", "ge", "ho",
    "is", "la", "mi", "ne", "op", "pro", "ta",
];

/// A vocabulary of pseudo-words.
#[derive(Debug)]
pub(crate) struct Words {
    words: Vec<String>,
    random: Random,
}

impl Words {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let word = |random: &mut Random| -> String {
            (0..=random.below(4)).map(|_| SYLLABLES[random.below(SYLLABLES.len())]).collect()
        };
        let words = (0..20_000).map(|_| word(&mut random)).collect();
        Self { words, random }
    }

    /// Common words come more often, as in real text.
    pub(crate) fn word(&mut self) -> &str {
        let share = self.random.share();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into the words")]
        let index = (share * share * share * self.words.len() as f64) as usize;
        &self.words[index.min(self.words.len() - 1)]
    }

    /// At least `bytes` of lines, ending with a newline.
    pub(crate) fn lines(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 128);
        while text.len() < bytes {
            for _ in 0..4 + self.random.below(11) {
                let word = self.word();
                text.push_str(word);
                text.push(' ');
            }
            text.pop();
            text.push('\n');
        }
        text
    }

    /// Exactly `bytes` of it.
    pub(crate) fn text(&mut self, bytes: usize) -> String {
        let mut text = self.lines(bytes);
        text.truncate(bytes);
        text
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_text() {
        assert_eq!(Words::new(7).text(1000), Words::new(7).text(1000));
        assert_ne!(Words::new(7).text(1000), Words::new(8).text(1000));
        assert_eq!(Words::new(7).text(1000).len(), 1000);
    }
}
