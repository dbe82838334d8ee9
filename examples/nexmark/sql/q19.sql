SELECT auction, bidder, price, channel, url, date_time, extra
FROM bids
QUALIFY row_number() OVER (
    PARTITION BY auction ORDER BY price DESC, date_time DESC, bidder DESC, channel DESC, url DESC, extra DESC
) <= 10
