//! Any number of kills, and any content of an in-flight log.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_number_of_devices_is_killed(
        packed: bool,
        size in 0_u32..5,
        start: u16,
        batch in 1_usize..9,
        event_idx: bool,
        driver_goes_on: bool,
        larger_log: bool,
        kills in prop::collection::vec(0_usize..60, 0..40),
    ) {
        let features = if event_idx { EVENT_IDX } else { 0 } | if packed { PACKED } else { 0 };
        let [scenario, _] = scenarios(batch);
        let scenario = Scenario { ring_size: 1 << size, start, features, requests: 40, driver_goes_on, larger_log, ..scenario };
        let mut world = World::new(scenario);
        for stores in kills {
            if killed_after(stores, || world.live()).is_some() {
                break;
            }
            world.scenario.batch = 1 + (world.scenario.batch + stores) % 9;
            world.meanwhile();
        }
        world.live();
        world.assert_done();
    }

    /// Any content of a log leads to an error, or to a queue with a valid number of requests. No panic, no endless
    /// loop.
    #[test]
    fn any_log_is_handled(
        used: u16,
        size in 0_u32..4,
        words in prop::collection::vec(prop_oneof![2 => 0_u16..9, 1 => any::<u16>()], 8 + 8 * 8),
        larger_log: bool,
        version in prop_oneof![8 => Just(1_u16), 1 => any::<u16>()],
        behind in prop_oneof![3 => 0_u16..9, 1 => any::<u16>()],
    ) {
        let [scenario, _] = scenarios(3);
        let scenario = Scenario { ring_size: 1 << size, start: used, requests: 20, larger_log, ..scenario };
        let mut world = World::new(Scenario { ring_size: 8, ..scenario });
        world.scenario.ring_size = 8;
        let mut words = words;
        // Features, mostly known ones, then roughly matching fields.
        if version == 1 {
            words[..4].copy_from_slice(&[0, 0, 0, u16::from(larger_log) << 15]);
        }
        words[4] = version;
        words[7] = used.wrapping_sub(behind);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        world.log.write_all_at(&bytes, 0).unwrap();
        if let Ok(queue) = world.driver.queue_with(&world.disk, Some(world.area())) {
            world.submit();
            world.complete_all(queue);
        }
        world.driver.assert_guards();
    }

    /// The same holds for a valid log with some changed bytes.
    #[test]
    fn any_change_to_a_log_is_handled(
        packed: bool,
        start: u16,
        larger_log: bool,
        batch in 1_usize..4,
        stores in 20_usize..300,
        changes in prop::collection::vec((prop_oneof![0_u64..32, 0_u64..32 + 8 * 32], any::<u8>()), 1..5),
    ) {
        let features = if packed { PACKED } else { 0 };
        let [scenario, _] = scenarios(batch);
        let mut world = World::new(Scenario { ring_size: 8, start, features, requests: 40, larger_log, ..scenario });
        killed_after(stores, || world.live());
        for (at, byte) in changes {
            world.log.write_all_at(&[byte], at % world.scenario.log().bytes()).unwrap();
        }
        if let Ok(queue) = world.driver.queue_with(&world.disk, Some(world.area())) {
            world.complete_all(queue);
        }
        world.driver.assert_guards();
    }
}
