use super::*;

#[test]
fn drawn_numbers_include_both_bounds_only() {
    let drawn: Vec<u64> = (0..200).map(|_| draw(3, 5)).collect();
    for number in 3..=5 {
        assert!(drawn.contains(&number), "{number} is never drawn");
    }
    assert!(drawn.iter().all(|number| (3..=5).contains(number)));
    assert_eq!(draw(7, 7), 7);
}
