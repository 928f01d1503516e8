//! Whatever text is taken for a configuration: every mistake has a place, and what the node shows of a configuration it
//! can also read.
#![no_main]

use std::sync::LazyLock;

use aegis_core::{
    config::NodeConfig,
    document::{MAX_DIAGNOSTICS, Shape},
};
use libfuzzer_sys::fuzz_target;

static SHAPE: LazyLock<Shape> = LazyLock::new(Shape::of::<NodeConfig>);

fuzz_target!(|text: &str| {
    match SHAPE.parse::<NodeConfig>(text) {
        Ok(parsed) => {
            let shown = parsed.value.to_yaml();
            let again = SHAPE.parse::<NodeConfig>(&shown).expect("what is shown can be read");
            assert_eq!(again.value.to_yaml(), shown);
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty() && mistakes.len() <= MAX_DIAGNOSTICS + 1);
            for mistake in mistakes {
                assert!(mistake.line >= 1 && mistake.column >= 1, "{mistake:?}");
                assert!(!mistake.message.is_empty() && !mistake.message.contains('\n'), "{mistake:?}");
                assert!(!mistake.render(text, "config.yaml").is_empty());
            }
        }
    }
});
