"""The paper's theory as numbers: what a policy needs of offline data, exactly and from samples."""
