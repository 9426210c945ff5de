"""How the recordings of Montezuma's Revenge that ship with hyq were made."""
