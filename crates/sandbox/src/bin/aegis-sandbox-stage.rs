//! The sandbox stage alone: what tests start in place of the node binary.

fn main() {
    if aegis_sandbox::is_stage() {
        aegis_sandbox::stage_main();
    }
}
