//! Times on the wire: RFC 3339 with up to nine digits of a second's fraction, in any offset.

/// The last second that RFC 3339 can write.
pub(super) const LATEST: i64 = 253_402_300_799;

/// The whole Unix seconds of an instant. The fraction is not signed and is left out.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let offset_at = time.find(['Z', '+', '-'])?;
    let (time, offset) = time.split_at(offset_at);
    let time = match time.split_once('.') {
        None => time,
        Some((whole, fraction)) => {
            let digits =
                (1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit());
            if !digits {
                return None;
            }
            whole
        }
    };
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let in_range = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        return None;
    }
    let ahead = match offset.split_at_checked(1)? {
        ("Z", "") => 0,
        (sign, clock) => {
            let [hours, minutes] = numbers(clock, ':', [2, 2])?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            match sign {
                "+" => seconds,
                "-" => -seconds,
                _ => return None,
            }
        }
    };
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - ahead)
}

/// Numbers of fixed width with a separator between them.
fn numbers<const N: usize>(text: &str, separator: char, widths: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (number, width) in found.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Counted in years that begin in March, so that a leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_one_second() {
        for text in [
            "2026-02-17T14:32:01Z",
            "2026-02-17T14:32:01.583Z",
            "2026-02-17T14:32:01.999999999Z",
            "2026-02-17T15:32:01.583+01:00",
            "2026-02-17T04:02:01-10:30",
            "2026-02-17T14:32:01+00:00",
        ] {
            assert_eq!(parse(text), Some(1_771_338_721), "{text}");
        }
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2000-02-29T23:59:59Z"), Some(951_868_799));
        assert_eq!(parse("9999-12-31T23:59:59Z"), Some(LATEST));
    }

    #[test]
    fn what_is_not_exactly_that_is_refused() {
        for text in [
            "",
            "2026-02-17T14:32:01",
            "2026-02-17 14:32:01Z",
            "2026-02-17t14:32:01z",
            "2026-02-17T14:32:01.Z",
            "2026-02-17T14:32:01.1234567890Z",
            "2026-02-30T14:32:01Z",
            "2025-02-29T14:32:01Z",
            "1900-02-29T14:32:01Z",
            "2026-13-17T14:32:01Z",
            "2026-02-17T24:00:00Z",
            "2026-02-17T23:59:60Z",
            "2026-02-17T14:32:01+0100",
            "2026-02-17T14:32:01+24:00",
            "2026-02-17T14:32:01ZZ",
            "2026-02-17T14:32Z",
            "+2026-02-17T14:32:01Z",
            "20260217T143201Z",
            "2026-02-17T14:32:01Ｚ",
            "１026-02-17T14:32:01Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
