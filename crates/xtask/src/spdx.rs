//! Licence expressions, as in SPDX: enough of them to tell whether an allowed licence can be chosen.

/// Whether `expression` can be met with `allowed` licences only. The old form with slashes means OR. What cannot be read
/// is not allowed.
pub(crate) fn allows(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let met = parser.any();
    met == Some(true) && parser.words.is_empty()
}

struct Parser<'text> {
    words: &'text [&'text str],
    allowed: &'text [&'text str],
}

impl<'text> Parser<'text> {
    /// `all { OR all }`
    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.take("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    /// `one { AND one }`
    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.take("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    /// `( any )` or `licence [ WITH exception ]`
    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let met = self.any()?;
            return self.take(")").then_some(met);
        }
        let licence = self.next().filter(|word| !["AND", "OR", "WITH", ")"].contains(word))?;
        if self.take("WITH") {
            let with = format!("{licence} WITH {}", self.next()?);
            return Some(self.allowed.contains(&with.as_str()));
        }
        Some(self.allowed.contains(&licence))
    }

    fn next(&mut self) -> Option<&'text str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take(&mut self, word: &str) -> bool {
        let here = self.words.first() == Some(&word);
        if here {
            self.words = &self.words[1..];
        }
        here
    }
}

#[cfg(test)]
mod tests {
    use super::allows;

    #[test]
    fn expressions_are_met_or_not() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        for met in [
            "MIT",
            "MIT/GPL-3.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "GPL-3.0 AND BSL-1.0 OR MIT AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(allows(met, &allowed), "{met}");
        }
        for not_met in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT OR", "(MIT", "MIT MIT", "MIT WITH LLVM-exception", "OR MIT"]
        {
            assert!(!allows(not_met, &allowed), "{not_met}");
        }
    }
}
