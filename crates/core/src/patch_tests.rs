use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Patch {
    Patch::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn paths(patch: &Patch) -> Vec<&str> {
    patch.files.iter().flat_map(FilePatch::paths).collect()
}

fn problem(text: &str) -> String {
    Patch::parse(text).unwrap_err().to_string()
}

#[test]
fn a_plain_diff_is_read_with_its_line_ends() {
    let patch = parse(
        "--- notes.txt\t2026-01-01\n+++ notes.txt\n@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of file\n+2\n",
    );
    let [file] = &patch.files[..] else { panic!("{patch:?}") };
    assert_eq!((file.old.as_deref(), file.new.as_deref()), (Some("notes.txt"), Some("notes.txt")));
    let texts: Vec<(Sign, &str)> =
        file.hunks[0].lines.iter().map(|line| (line.sign, line.text.as_str())).collect();
    assert_eq!(texts, [(Sign::Context, "one\n"), (Sign::Removed, "two"), (Sign::Added, "2\n")]);
    assert_eq!(file.hunks[0].to_string(), "@@ -1,2 +2 @@");
}

#[test]
fn git_writes_new_deleted_and_renamed_files() {
    let patch = parse(
        "From 1 Mon\nSubject: x\n\ndiff --git a/new b/new\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/new\n\
         @@ -0,0 +1 @@\n+x\ndiff --git a/old b/old\ndeleted file mode 100644\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
         diff --git a/from b/to dir/x\nsimilarity index 100%\nrename from from\nrename to to dir/x\n\
         diff --git a/em pty b/em pty\nnew file mode 100644\nindex 000..e69\n",
    );
    let ends: Vec<_> =
        patch.files.iter().map(|file| (file.old.as_deref(), file.new.as_deref(), file.hunks.len())).collect();
    assert_eq!(
        ends,
        [
            (None, Some("new"), 1),
            (Some("old"), None, 1),
            (Some("from"), Some("to dir/x"), 0),
            (None, Some("em pty"), 0),
        ]
    );
    assert!(patch.files[0].executable);
    assert_eq!(paths(&patch), ["new", "old", "from", "to dir/x", "em pty"]);
}

#[test]
fn names_are_unquoted_and_traversal_is_kept_for_whoever_checks() {
    let patch =
        parse("--- \"a/t\\303\\244st \\\"x\\\"\"\n+++ \"b/t\\303\\244st \\\"x\\\"\"\n@@ -1 +1 @@\n-a\n+b\n");
    assert_eq!(patch.files[0].path(), "täst \"x\"");
    let patch = parse("--- a/../../etc/passwd\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n");
    assert_eq!(paths(&patch), ["../../etc/passwd"]);
    // Without both prefixes a directory called `a` is a directory called `a`.
    assert_eq!(parse("--- a/x\n+++ a/x\n@@ -1 +1 @@\n-a\n+b\n").files[0].path(), "a/x");
}

#[test]
fn what_can_not_be_used_is_told_with_its_line() {
    for (text, words) in [
        ("nothing here\n", "no hunk"),
        ("--- a\n+++ a\n", "nothing is changed"),
        ("@@ -1 +1 @@\n-a\n+b\n", "before `---`"),
        ("--- a\n+++ a\n@@ -1,x +1 @@\n-a\n", "a hunk begins with"),
        ("--- a\n+++ a\n@@ -1,2 +1,2 @@\n a\n", "ends before"),
        ("--- a\n+++ a\n@@ -1,1 +1,1 @@\n-a\n-b\n", "more lines"),
        ("--- a\n+++ a\n@@ -1 +1 @@\n*a\n", "begins with none"),
        ("diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 3\n", "binary patch"),
        ("Binary files a/x and b/x differ\n", "binary patch"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "mode of a file"),
        ("diff --git a/x b/x\nnew file mode 120000\n", "symbolic link"),
        ("diff --git a/x b/y\nsimilarity index 9%\ncopy from x\ncopy to y\n", "copies a file"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "both names"),
        ("--- a\n+++ a\n@@ -1,99999999999 +1 @@\n-a\n", "a hunk begins with"),
        ("--- a\n+++ \"\\\n@@ -1 +1 @@\n-a\n+b\n", "quoted name"),
    ] {
        assert!(problem(text).contains(words), "{text}: {}", problem(text));
    }
    assert_eq!(Patch::parse(&"x".repeat(MAX_PATCH_BYTES + 1)), Err(BadPatch::TooLong));
    let many = "--- a\n+++ a\n@@ -1 +1 @@\n-a\n+b\n".repeat(MAX_FILES + 1);
    assert_eq!(Patch::parse(&many), Err(BadPatch::TooMany));
}

proptest! {
    #[test]
    fn any_text_is_a_patch_or_a_refusal(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "diff --git a/x b/x\n", "--- a/x\n", "+++ b/x\n", "@@ -1,2 +1,2 @@\n", "@@ -0,0 +1 @@\n", " a\n", "-b\r\n",
                "+c\n", "\\ No newline\n", "rename from x\n", "rename to y\n", "new file mode 100644\n", "\n", "@@ ",
                "\"\\", "+++ /dev/null\n",
            ]),
            0..40,
        ),
        noise in ".{0,20}",
    ) {
        let text = parts.concat() + &noise;
        if let Ok(patch) = Patch::parse(&text) {
            prop_assert!(patch.files.iter().all(|file| !file.path().is_empty()));
        }
    }
}
