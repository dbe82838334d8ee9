SELECT auction, bidder, price, date_time, value
FROM bids
JOIN side_input ON bids.auction % 10000 = side_input.key
