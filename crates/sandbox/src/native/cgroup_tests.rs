//! Control groups against directories that look like them: what is written where, for both generations.

use super::*;

fn tree(version: Version, root: &Path) -> Groups {
    let places = CONTROLLERS
        .map(|controller| {
            Ok(Place {
                controller,
                version,
                parent: match version {
                    Version::One => root.join(controller),
                    Version::Two => root.to_owned(),
                },
            })
        })
        .to_vec();
    for controller in CONTROLLERS {
        let _ = fs::create_dir(root.join(controller));
    }
    Groups::with(places)
}

#[test]
fn the_second_generation_has_one_directory_and_its_own_files() {
    let root = tempfile::tempdir().unwrap();
    let groups = tree(Version::Two, root.path());
    let name = format!("aegis-{}-0", std::process::id());
    let path = root.path().join(&name);
    // The kernel makes these files; here they are made beforehand for the next name.
    let group =
        Group { parts: groups.places.iter().flatten().map(|place| (place.clone(), path.clone())).collect() };
    fs::create_dir(&path).unwrap();
    let limits = Limits { memory: 1 << 20, processes: 9, cpu: 0.5, ..Limits::default() };
    group.limit(&limits).unwrap();
    let read = |file: &str| fs::read_to_string(path.join(file)).unwrap();
    assert_eq!(read("memory.max"), "1048576");
    assert_eq!(read("memory.swap.max"), "0");
    assert_eq!(read("pids.max"), "10");
    assert_eq!(read("cpu.max"), "50000 100000");
    assert!(!group.ran_out_of_memory());
    fs::write(path.join("memory.events"), "low 0\noom 3\noom_kill 2\n").unwrap();
    assert!(group.ran_out_of_memory());
}

#[test]
fn the_place_is_found_in_the_tables_of_both_generations() {
    let mounts = "30 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  31 20 0:28 /slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    let mount = |wanted: &dyn Fn(&Mount<'_>) -> bool| {
        mounts.lines().find_map(|line| Mount::parse(line, wanted)).unwrap()
    };
    let first = mount(&|mount| mount.has("memory"));
    assert_eq!(first.directory("/a/b"), Path::new("/sys/fs/cgroup/memory/a/b"));
    let second = mount(&|mount| mount.kind == "cgroup2");
    assert_eq!(second.directory("/slice/unit"), Path::new("/sys/fs/cgroup/unit"));
    assert!(place("", "", "memory").is_err());
}

#[test]
fn a_controller_is_handed_down_where_the_group_has_it() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
    assert!(second_generation(root.path(), "pids").is_err());
    second_generation(root.path(), "memory").unwrap();
    assert_eq!(fs::read_to_string(root.path().join("cgroup.subtree_control")).unwrap(), "+memory");
}

#[test]
fn groups_of_dead_nodes_are_swept_and_others_left() {
    let root = tempfile::tempdir().unwrap();
    let groups = tree(Version::One, root.path());
    let memory = root.path().join("memory");
    // Process numbers end at 2^22.
    for name in ["aegis-99999999-0", "aegis-1-0", "other"] {
        fs::create_dir(memory.join(name)).unwrap();
    }
    groups.sweep();
    assert!(!memory.join("aegis-99999999-0").exists());
    assert!(memory.join("aegis-1-0").exists() && memory.join("other").exists());
}
