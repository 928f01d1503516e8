//! "Did you mean": the known name closest to a mistyped one.

/// Longer than any name there is. Comparing costs the product of both lengths, and what is given may come from anybody.
const LONGEST: usize = 256;

/// The closest of `known` to `given`, if any is close enough to be a likely slip.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if given.len() > LONGEST {
        return None;
    }
    let given_lower = given.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&given_lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= (name.chars().count().max(given.chars().count()) / 3).max(1))
        .min()
        .map(|(_, name)| name)
}

/// `; did you mean `x`?`, or nothing.
pub fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(given, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_leaves_strangers_alone() {
        let known = ["path_allowlist", "domain_allowlist", "rate_limit"];
        assert_eq!(nearest("path_alowlist", known), Some("path_allowlist"));
        assert_eq!(nearest("Rate-Limit", known), Some("rate_limit"));
        assert_eq!(nearest("colour", known), None);
    }

    #[test]
    fn what_is_no_name_is_compared_with_nothing() {
        let long = "a".repeat(LONGEST);
        assert_eq!(nearest(&long, [long.as_str()]), Some(long.as_str()));
        let longer = "a".repeat(8 << 20);
        assert_eq!(nearest(&longer, [longer.as_str(); 64]), None);
    }
}
