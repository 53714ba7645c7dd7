-- Grain: a macro; the chance that the clip with the higher MOS is truly better, by the means' standard errors. Null where
-- one is unknown, or both are 0: listeners who all agreed tell nothing of the spread.
CREATE OR REPLACE MACRO order_chance(mos_gap, mos_se, other_mos_se) AS
    CASE
        WHEN mos_se IS NULL OR other_mos_se IS NULL OR (mos_se = 0 AND other_mos_se = 0) THEN NULL
        ELSE normal_cdf(mos_gap / sqrt(mos_se ** 2 + other_mos_se ** 2))
    END
