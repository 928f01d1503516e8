//! Putting the hunks of a patch where they belong.

use aegis_core::patch::{FilePatch, Hunk, Line, Sign};
use schemars::JsonSchema;
use serde::Serialize;

use super::error::FileError;

/// Lines of context that may be left out at each end of a hunk.
const MOST_FUZZ: usize = 2;
/// Lines compared for one file. A patch may be made so that every place almost fits.
const MOST_COMPARISONS: usize = 20_000_000;

/// Where a hunk went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedHunk {
    /// The line that it starts at in the file as it was, counted from one.
    pub line: u64,
    /// How many lines that is below the one the patch names.
    pub offset: i64,
    /// Lines of context that did not fit and were left out at each end.
    pub fuzz: u64,
    /// Patch and file end their lines differently (CRLF and LF); the file's way was kept.
    pub line_ends_adapted: bool,
}

/// The content after the patch. `content` is `None` where the file is not there.
pub(super) fn apply(
    patch: &FilePatch,
    content: Option<&[u8]>,
) -> Result<(Option<Vec<u8>>, Vec<AppliedHunk>), FileError> {
    let content = match (content, &patch.old) {
        (Some(content), _) => content,
        (None, None) => &[],
        (None, Some(_)) => return Err(FileError::NotFound),
    };
    let mut file = Fitting::new(content);
    let mut applied = Vec::with_capacity(patch.hunks.len());
    for (index, hunk) in patch.hunks.iter().enumerate() {
        let fitted = file.fit(hunk).map_err(|problem| {
            FileError::PatchFailed(format!(
                "hunk {} of {} for `{}` ({hunk}) does not apply: {problem}; nothing was changed",
                index + 1,
                patch.hunks.len(),
                patch.path()
            ))
        })?;
        applied.push(fitted);
    }
    let after = file.finish();
    match (&patch.new, after.is_empty()) {
        (Some(_), _) => Ok((Some(after), applied)),
        (None, true) => Ok((None, applied)),
        // Git writes an empty file's deletion without hunks; for any other file the lines must be there.
        (None, false) => Err(FileError::PatchFailed(format!(
            "the patch deletes `{}` and does not remove all of its lines; nothing was changed",
            patch.path()
        ))),
    }
}

struct Fitting<'f> {
    lines: Vec<&'f [u8]>,
    /// The first line that no hunk has passed.
    next: usize,
    /// How far the last hunk was from where the patch said.
    shift: i64,
    crlf: bool,
    after: Vec<u8>,
    comparisons: usize,
}

#[derive(Debug, Clone, Copy)]
struct Fit {
    /// Where the hunk without its left-out context starts.
    at: usize,
    front: usize,
    back: usize,
    fuzz: usize,
    relaxed: bool,
}

impl<'f> Fitting<'f> {
    fn new(content: &'f [u8]) -> Self {
        let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
        let crlf = lines.first().is_some_and(|line| line.ends_with(b"\r\n"));
        Self { lines, next: 0, shift: 0, crlf, after: Vec::with_capacity(content.len()), comparisons: 0 }
    }

    fn fit(&mut self, hunk: &Hunk) -> Result<AppliedHunk, &'static str> {
        let fit = self.find(hunk)?;
        self.after.extend(self.lines[self.next..fit.at].iter().copied().flatten());
        let mut at = fit.at;
        for line in &hunk.lines[fit.front..hunk.lines.len() - fit.back] {
            match line.sign {
                Sign::Context => {
                    self.put(self.lines[at], fit.relaxed)?;
                    at += 1;
                }
                Sign::Removed => at += 1,
                Sign::Added if fit.relaxed => {
                    let text = line.text.trim_end_matches(['\n', '\r']);
                    let end = match (line.text.ends_with('\n'), self.crlf) {
                        (false, _) => "",
                        (true, true) => "\r\n",
                        (true, false) => "\n",
                    };
                    self.put(format!("{text}{end}").as_bytes(), true)?;
                }
                Sign::Added => self.put(line.text.as_bytes(), false)?,
            }
        }
        self.next = at;
        // Lines that are there count from one; a hunk that only adds names the line before it.
        let (start, named) = (signed(fit.at - fit.front.min(fit.at)), signed(hunk.old_start));
        let named = if takes(hunk).next().is_some() { named - 1 } else { named };
        self.shift = start - named;
        Ok(AppliedHunk {
            line: fit.at as u64 + 1,
            offset: self.shift,
            fuzz: fit.fuzz as u64,
            line_ends_adapted: fit.relaxed,
        })
    }

    fn put(&mut self, line: &[u8], relaxed: bool) -> Result<(), &'static str> {
        if self.after.last().is_some_and(|last| *last != b'\n') {
            if !relaxed {
                return Err("it goes on after a line that it says is the end of the file");
            }
            self.after.extend(if self.crlf { &b"\r\n"[..] } else { b"\n" });
        }
        self.after.extend(line);
        Ok(())
    }

    fn find(&mut self, hunk: &Hunk) -> Result<Fit, &'static str> {
        let old: Vec<&[u8]> = takes(hunk).map(|line| line.text.as_bytes()).collect();
        let (front, back) = (context(hunk.lines.iter()), context(hunk.lines.iter().rev()));
        let named = signed(hunk.old_start) + self.shift;
        if old.is_empty() {
            let at = usize::try_from(named).ok().filter(|at| (self.next..=self.lines.len()).contains(at));
            let at = at.ok_or("the line it comes after is not in the file")?;
            return Ok(Fit { at, front: 0, back: 0, fuzz: 0, relaxed: false });
        }
        let mut tried = None;
        for fuzz in 0..=MOST_FUZZ {
            let (front, back) = (fuzz.min(front), fuzz.min(back));
            if tried.replace((front, back)) == Some((front, back)) || front + back >= old.len() {
                continue;
            }
            let wanted = &old[front..old.len() - back];
            for relaxed in [false, true] {
                if let Some(at) = self.search(wanted, named - 1 + signed(front), relaxed)? {
                    return Ok(Fit { at, front, back, fuzz, relaxed });
                }
            }
        }
        Err("the lines it keeps or removes are not in the file in that order")
    }

    /// The place nearest to `wished` where all of the lines are.
    fn search(
        &mut self,
        wanted: &[&[u8]],
        wished: i64,
        relaxed: bool,
    ) -> Result<Option<usize>, &'static str> {
        let Some(last) = self.lines.len().checked_sub(wanted.len()).filter(|last| *last >= self.next) else {
            return Ok(None);
        };
        let wished = usize::try_from(wished).unwrap_or(0).clamp(self.next, last);
        let furthest = (wished - self.next).max(last - wished);
        for distance in 0..=furthest {
            let below = Some(wished + distance).filter(|at| *at <= last);
            let above = wished.checked_sub(distance).filter(|at| distance > 0 && *at >= self.next);
            for at in below.into_iter().chain(above) {
                if self.matches(wanted, at, relaxed)? {
                    return Ok(Some(at));
                }
            }
        }
        Ok(None)
    }

    fn matches(&mut self, wanted: &[&[u8]], at: usize, relaxed: bool) -> Result<bool, &'static str> {
        for (wanted, line) in wanted.iter().zip(&self.lines[at..]) {
            self.comparisons += 1;
            if self.comparisons > MOST_COMPARISONS {
                return Err(
                    "looking for its place takes too long: file and patch are too much alike all over",
                );
            }
            let same = if relaxed { bare(wanted) == bare(line) } else { wanted == line };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn finish(mut self) -> Vec<u8> {
        self.after.extend(self.lines[self.next..].iter().copied().flatten());
        self.after
    }
}

fn takes(hunk: &Hunk) -> impl Iterator<Item = &Line> {
    hunk.lines.iter().filter(|line| line.sign != Sign::Added)
}

/// How many lines of context come first.
fn context<'l>(lines: impl Iterator<Item = &'l Line>) -> usize {
    lines.take_while(|line| line.sign == Sign::Context).count()
}

fn bare(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use aegis_core::patch::Patch;
    use proptest::prelude::*;

    use super::*;

    fn patched(patch: &str, content: &str) -> Result<(String, Vec<AppliedHunk>), String> {
        let patch = Patch::parse(patch).unwrap();
        let (after, hunks) =
            apply(&patch.files[0], Some(content.as_bytes())).map_err(|error| error.to_string())?;
        Ok((String::from_utf8(after.unwrap_or_default()).unwrap(), hunks))
    }

    fn numbered(lines: std::ops::Range<u32>) -> String {
        lines.map(|n| format!("line {n}\n")).collect()
    }

    #[test]
    fn a_hunk_far_from_its_line_is_found_and_told() {
        let patch = "--- a\n+++ a\n@@ -10,3 +10,3 @@\n line 10\n-line 11\n+LINE 11\n line 12\n";
        let (text, hunks) = patched(patch, &numbered(1..20)).unwrap();
        assert!(text.contains("LINE 11"));
        assert_eq!((hunks[0].line, hunks[0].offset, hunks[0].fuzz), (10, 0, 0));
        let (text, hunks) = patched(patch, &(numbered(100..150) + &numbered(1..20))).unwrap();
        assert!(text.contains("line 10\nLINE 11\nline 12"));
        assert_eq!((hunks[0].line, hunks[0].offset), (60, 50));
    }

    #[test]
    fn context_that_has_changed_is_fuzz_and_removed_lines_must_be_there() {
        let patch = "--- a\n+++ a\n@@ -1,5 +1,5 @@\n one\n two\n-three\n+3\n four\n five\n";
        let (text, hunks) = patched(patch, "ONE\ntwo\nthree\nfour\nfive\n").unwrap();
        assert_eq!(text, "ONE\ntwo\n3\nfour\nfive\n");
        assert_eq!((hunks[0].fuzz, hunks[0].offset, hunks[0].line), (1, 0, 2));
        assert!(patched(patch, "one\ntwo\nTHREE\nfour\nfive\n").unwrap_err().contains("hunk 1 of 1"));
        assert!(patched(patch, "x\ny\nz\n").is_err());
        assert!(patched(patch, "").is_err());
    }

    #[test]
    fn line_ends_and_missing_ends_are_kept() {
        let lf = "--- a\n+++ a\n@@ -1,2 +1,3 @@\n one\n+1.5\n two\n";
        let (text, hunks) = patched(lf, "one\r\ntwo\r\n").unwrap();
        assert_eq!(text, "one\r\n1.5\r\ntwo\r\n");
        assert!(hunks[0].line_ends_adapted);
        let crlf = lf.replace('\n', "\r\n");
        assert_eq!(patched(&crlf, "one\r\ntwo\r\n").unwrap().0, "one\r\n1.5\r\ntwo\r\n");
        assert_eq!(patched(&crlf, "one\ntwo\n").unwrap().0, "one\n1.5\ntwo\n");
        let no_end = "--- a\n+++ a\n@@ -1 +1 @@\n-old\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n";
        assert_eq!(patched(no_end, "old").unwrap().0, "new");
        assert_eq!(patched("--- a\n+++ a\n@@ -1 +1,2 @@\n a\n+b\n", "a").unwrap().0, "a\nb\n");
        let early = "--- a\n+++ a\n@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n@@ -2 +2 @@\n-b\n+B\n";
        assert!(patched(early, "a\nb\n").unwrap_err().contains("end of the file"));
    }

    #[test]
    fn making_and_deleting() {
        let made = Patch::parse("--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n").unwrap();
        assert_eq!(apply(&made.files[0], None).unwrap().0.unwrap(), b"a\nb\n");
        let gone = Patch::parse("--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n").unwrap();
        assert_eq!(apply(&gone.files[0], Some(b"a\nb\n")).unwrap().0, None);
        assert!(apply(&gone.files[0], Some(b"a\nb\nc\n")).is_err());
        assert!(matches!(apply(&gone.files[0], None), Err(FileError::NotFound)));
    }

    proptest! {
        /// A diff made from two texts turns one into the other.
        #[test]
        fn diffs_apply(before in "([a-c]\n){0,30}[a-c]?", after in "([a-c]\n){0,30}[a-c]?") {
            prop_assume!(before != after);
            let diff = diffy::create_patch(&before, &after).to_string();
            let named = diff.replacen("--- original", "--- x", 1).replacen("+++ modified", "+++ x", 1);
            let patch = Patch::parse(&named).unwrap();
            let (made, _) = apply(&patch.files[0], Some(before.as_bytes())).unwrap();
            prop_assert_eq!(made.unwrap(), after.as_bytes());
        }
    }
}
